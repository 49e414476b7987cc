#include "apps/bench/data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "base/json.h"
#include "base/strings.h"

namespace apps::bench {
namespace {

using base::Code;
using base::Error;

constexpr int64_t kMaxLength = 1 << 24;

// The standard's distributions differ between libraries; its generator does not.
int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

base::Result<int64_t> ParseLength(const std::string& flag, std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > kMaxLength) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: '{}' is neither a number of tokens from 1 to {} nor a range such "
                             "as 100..1024",
                             flag, base::Printable(text), kMaxLength)};
  }
  return value;
}

std::vector<int32_t> RandomIds(std::mt19937_64& random, int64_t count, int64_t vocabulary) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(Uniform(random, 0, vocabulary - 1));
  return ids;
}

Error BadEntry(const std::string& path, size_t index, const std::string& what) {
  return {Code::kCorrupt, fmt::format("{}: entry {} {}", path, index, what)};
}

}  // namespace

base::Result<Lengths> ParseLengths(const std::string& flag, const std::string& text, double ratio) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) {
    const base::Result<int64_t> length = ParseLength(flag, text);
    if (!length) return length.error();
    const auto middle = static_cast<double>(*length);
    return Lengths{std::max<int64_t>(1, std::llround(std::floor(middle * (1 - ratio)))),
                   std::llround(std::ceil(middle * (1 + ratio)))};
  }
  const base::Result<int64_t> low = ParseLength(flag, std::string_view(text).substr(0, dots));
  if (!low) return low.error();
  const base::Result<int64_t> high = ParseLength(flag, std::string_view(text).substr(dots + 2));
  if (!high) return high.error();
  if (*low > *high) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {} is over {}", flag, *low, *high)};
  }
  if (ratio > 0) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: a range and --range-ratio exclude each other", flag)};
  }
  return Lengths{*low, *high};
}

std::vector<Prompt> RandomPrompts(const RandomData& data, uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<int32_t> prefix = RandomIds(random, data.prefix, data.vocabulary);
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < data.count; ++i) {
    Prompt p;
    p.ids = prefix;
    const int64_t length = Uniform(random, data.input.low, data.input.high);
    p.output_tokens = Uniform(random, data.output.low, data.output.high);
    const std::vector<int32_t> own = RandomIds(random, length, data.vocabulary);
    p.ids.insert(p.ids.end(), own.begin(), own.end());
    prompts.push_back(std::move(p));
  }
  return prompts;
}

base::Result<Conversations> Conversations::Read(const std::string& path) {
  const base::Result<boost::json::value> file = base::ParseJsonFile(path);
  if (!file) return file.error();
  if (!file->is_array()) {
    return Error{Code::kCorrupt, path + ": expected an array of conversations (ShareGPT)"};
  }
  Conversations out;
  out.path_ = path;
  const boost::json::array& entries = file->get_array();
  for (size_t i = 0; i < entries.size(); ++i) {
    const boost::json::object* entry = entries[i].if_object();
    if (entry == nullptr) return BadEntry(path, i, "is no object");
    const boost::json::value* turns = entry->if_contains("conversations");
    if (turns == nullptr) turns = entry->if_contains("conversation");
    if (turns == nullptr || !turns->is_array()) {
      return BadEntry(path, i, "has no array 'conversations'");
    }
    if (turns->get_array().size() < 2) continue;
    std::string texts[2];
    for (size_t t = 0; t < 2; ++t) {
      const boost::json::object* turn = turns->get_array()[t].if_object();
      const boost::json::value* value = turn == nullptr ? nullptr : turn->if_contains("value");
      if (value == nullptr || !value->is_string()) {
        return BadEntry(path, i, fmt::format("has a turn {} without a text 'value'", t));
      }
      texts[t] = std::string(value->get_string());
    }
    out.turns_.push_back({std::move(texts[0]), std::move(texts[1])});
  }
  if (out.turns_.empty()) {
    return Error{Code::kCorrupt, path + ": no conversation has two turns"};
  }
  return out;
}

base::Result<std::vector<Prompt>> Conversations::Sample(int64_t count, int64_t output_tokens,
                                                        int64_t max_tokens, uint64_t seed,
                                                        const Encode& encode) const {
  std::vector<size_t> order(turns_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 random(seed);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<size_t>(Uniform(random, 0, static_cast<int64_t>(i) - 1))]);
  }
  std::vector<Prompt> prompts;
  for (const size_t i : order) {
    if (static_cast<int64_t>(prompts.size()) == count) break;
    base::Result<std::vector<int32_t>> ids = encode(turns_[i].prompt, true);
    if (!ids) return ids.error().In(path_);
    Prompt p{.ids = *std::move(ids), .text = turns_[i].prompt, .output_tokens = output_tokens};
    if (output_tokens <= 0) {
      const base::Result<std::vector<int32_t>> answer = encode(turns_[i].answer, false);
      if (!answer) return answer.error().In(path_);
      p.output_tokens = static_cast<int64_t>(answer->size());
      if (p.output_tokens < 4) continue;
    }
    const auto length = static_cast<int64_t>(p.ids.size());
    const int64_t most = max_tokens > 0 ? std::min<int64_t>(max_tokens, 2048) : 2048;
    if (length < 4 || length > 1024 || length + p.output_tokens > most) continue;
    prompts.push_back(std::move(p));
  }
  if (prompts.empty()) {
    return Error{Code::kInvalidArgument,
                 path_ +
                     ": no conversation has a prompt of 4 to 1024 tokens and an answer that "
                     "fits: use another file or a larger --max-model-len"};
  }
  for (size_t i = 0; static_cast<int64_t>(prompts.size()) < count; ++i) {
    prompts.push_back(Prompt(prompts[i]));
  }
  return prompts;
}

std::vector<double> Arrivals(int64_t count, double rate, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(count), 0.0);
  if (std::isinf(rate)) return times;
  std::mt19937_64 random(seed);
  double now = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;  // [0, 1)
    times[i] = now += -std::log1p(-u) / rate;
  }
  return times;
}

}  // namespace apps::bench
