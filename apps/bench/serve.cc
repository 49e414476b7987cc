#include "apps/bench/serve.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/bench/engine_client.h"
#include "apps/bench/machine.h"
#include "apps/bench/profile.h"
#include "apps/bench/report.h"
#include "apps/bench/results.h"
#include "apps/bench/server_client.h"
#include "apps/fetch_model.h"
#include "apps/model_flags.h"
#include "base/json.h"
#include "base/os/file.h"
#include "base/os/module.h"
#include "base/strings.h"

namespace apps::bench {
namespace {

// Ids of random prompts where the server's vocabulary is not known: all published models have more.
constexpr int64_t kCautiousVocabulary = 10000;

using base::Code;
using base::Error;
using vllm::text::Tokenizer;

// Who is asked, and what is needed to make prompts for it.
struct Side {
  std::unique_ptr<EngineClient> engine;
  std::unique_ptr<ServerClient> server;
  vllm::engine::TextParts text;  // of --model, beside a server
  int64_t vocabulary = kCautiousVocabulary;
  int64_t max_tokens = 0;  // of prompt and answer; 0: not known

  Client& client() { return engine != nullptr ? static_cast<Client&>(*engine) : *server; }
  const Tokenizer* tokenizer() const {
    return engine != nullptr ? engine->engine().tokenizer() : text.tokenizer.get();
  }
};

base::Status LoadEngine(const ServeFlags& f, Side& side) {
  vllm::engine::LoadOptions options = f.options;
  ShowProgress(options);
  const bool own_length = options.max_model_len == 0 && f.dataset.empty();
  if (own_length) options.max_model_len = f.prefix + f.input.high + f.output.high;
  if (!f.max_seqs_given) {
    int64_t most = f.concurrency;
    for (const int64_t c : f.sweep) most = std::max(most, c);
    if (most > 0) options.max_num_seqs = std::min<int64_t>(most, 4096);
  }
  base::Result<std::unique_ptr<EngineClient>> engine = EngineClient::Load(std::move(options));
  if (!engine) {
    const bool too_long = base::StartsWith(engine.error().message, "--max-model-len");
    return own_length && too_long ? engine.error().In("--input-len and --output-len")
                                  : engine.error();
  }
  side.engine = *std::move(engine);
  side.vocabulary = side.engine->engine().vocabulary();
  side.max_tokens = side.engine->engine().options().max_model_len;
  return {};
}

base::Status Connect(const ServeFlags& f, Side& side) {
  ServerOptions options{.url = f.url,
                        .endpoint = f.endpoint,
                        .model = f.served_model,
                        .api_key = f.api_key,
                        .send_text = f.prompt_form == "text",
                        .extra_body = {}};
  if (!f.extra_body.empty()) {
    const base::Result<boost::json::value> extra = base::ParseJson(f.extra_body);
    if (!extra || !extra->is_object()) {
      return Error{Code::kInvalidArgument, "--extra-body must be a JSON object"};
    }
    options.extra_body = extra->get_object();
  }
  if (!f.options.model.empty()) {
    base::Result<vllm::engine::TextParts> text = vllm::engine::LoadText(f.options.model, "");
    if (!text) return text.error();
    side.text = *std::move(text);
    if (side.text.tokenizer == nullptr) {
      return Error{Code::kInvalidArgument, "--model: " + f.options.model + " has no tokenizer"};
    }
  }
  base::Result<std::unique_ptr<ServerClient>> server = ServerClient::Connect(std::move(options));
  if (!server) return server.error();
  side.server = *std::move(server);
  return {};
}

// Makes the prompts of each run; run -1 warms up.
class Data {
 public:
  static base::Result<Data> Open(const ServeFlags& f, const Side& side) {
    Data data(f, side);
    if (f.dataset.empty()) return data;
    if (side.tokenizer() == nullptr) {
      return Error{Code::kInvalidArgument, "--dataset-path: the model has no tokenizer"};
    }
    base::Result<Conversations> conversations = Conversations::Read(f.dataset);
    if (!conversations) return conversations.error();
    data.conversations_.push_back(*std::move(conversations));
    return data;
  }

  base::Result<Work> Make(int run, int64_t count) const {
    Work work;
    const uint64_t seed = f_.seed + static_cast<uint64_t>(run);
    const Tokenizer* tokenizer = side_.tokenizer();
    if (conversations_.empty()) {
      // The tokenizer's ids, so that in process and over HTTP the prompts are the same.
      int64_t vocabulary = side_.vocabulary;
      if (tokenizer != nullptr) {
        vocabulary = side_.engine != nullptr
                         ? std::min<int64_t>(vocabulary, tokenizer->vocab_size())
                         : tokenizer->vocab_size();
      }
      work.prompts = RandomPrompts({.count = count,
                                    .input = f_.input,
                                    .output = f_.output,
                                    .prefix = f_.prefix,
                                    .vocabulary = vocabulary},
                                   seed);
      if (side_.server != nullptr && tokenizer != nullptr) {
        for (Prompt& p : work.prompts) p.text = tokenizer->Decode(p.ids, false);
      }
    } else {
      base::Result<std::vector<Prompt>> prompts = conversations_[0].Sample(
          count, f_.output_given ? f_.output.low : 0, side_.max_tokens, seed,
          [&](std::string_view text, bool special) {
            return tokenizer->Encode(text, {.add_special_tokens = special, .parse_special = false});
          });
      if (!prompts) return prompts.error();
      work.prompts = *std::move(prompts);
    }
    work.arrivals = Arrivals(count, f_.request_rate, seed);
    work.temperature = static_cast<float>(f_.temperature);
    work.seed = seed;
    work.ignore_eos = f_.ignore_eos.value_or(f_.dataset.empty());
    work.ids = !f_.output_ids.empty();
    work.salt = fmt::format("run {}", run);
    return work;
  }

 private:
  Data(const ServeFlags& f, const Side& side) : f_(f), side_(side) {}
  const ServeFlags& f_;
  const Side& side_;
  std::vector<Conversations> conversations_;  // one, or none: random
};

// On a terminal: what is done of all runs.
class Bar {
 public:
  explicit Bar(int64_t total) : total_(total), terminal_(base::os::IsTerminal(2)) {}
  void Add(const RequestRecord& r) {
    ++done_;
    failed_ += r.ok() ? 0 : 1;
    tokens_ += r.output_tokens;
    if (!terminal_) return;
    fmt::print(stderr, "\r[{:<40}] {}/{} requests, {} tokens{}",
               std::string(static_cast<size_t>(done_ * 40 / total_), '#'), done_, total_, tokens_,
               failed_ > 0 ? fmt::format(", {} failed", failed_) : "");
    std::fflush(stderr);
  }
  void Clear() const {
    if (terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  int64_t total_, done_ = 0, failed_ = 0, tokens_ = 0;
  bool terminal_;
};

base::Status MeasureAll(const ServeFlags& f, Side& side, Results& results) {
  const base::Result<Data> data = Data::Open(f, side);
  if (!data) return data.error();
  std::vector<int64_t> concurrencies = f.sweep;
  if (concurrencies.empty()) concurrencies = {f.concurrency};
  Bar bar(f.warmups + f.num_prompts * f.repeat * static_cast<int64_t>(concurrencies.size()));
  const auto on_done = [&](const RequestRecord& r) { bar.Add(r); };
  if (f.warmups > 0) {
    base::Result<Work> work = data->Make(-1, f.warmups);
    if (!work) return work.error();
    work->concurrency = concurrencies.back();
    const Point warm = Point::Of(0, {side.client().Run(*work, on_done)});
    if (warm.shown().completed == 0) {  // the rest would fail too
      results.points.push_back(warm);
      bar.Clear();
      return {};
    }
  }
  int run = 0;
  for (const int64_t concurrency : concurrencies) {
    std::vector<RunRecord> runs;
    for (int r = 0; r < f.repeat; ++r) {
      base::Result<Work> work = data->Make(run++, f.num_prompts);
      if (!work) return work.error();
      work->concurrency = concurrency;
      runs.push_back(side.client().Run(*work, on_done));
    }
    results.points.push_back(Point::Of(concurrency, std::move(runs)));
  }
  bar.Clear();
  return {};
}

std::string RangeText(const Lengths& l) {
  return l.low == l.high ? std::to_string(l.low) : fmt::format("{}..{}", l.low, l.high);
}

void Describe(const ServeFlags& f, const Side& side, Results& results) {
  results.command = f.command;
  results.date = DateText();
  results.machine = ProcessorText();
  results.request_rate = f.request_rate;
  results.over_http = side.server != nullptr;
  results.model = side.server != nullptr ? side.server->model() : f.options.model;
  if (side.server != nullptr) {
    results.target = f.url + f.endpoint;
  } else {
    results.target = side.engine->engine().description() + ", on " +
                     DeviceText(side.engine->engine().options().device);
  }
  auto& s = results.settings;
  s.emplace_back("prompts", std::to_string(f.num_prompts));
  if (f.dataset.empty()) {
    s.emplace_back("input", RangeText(f.input));
    if (f.prefix > 0) s.emplace_back("shared prefix", std::to_string(f.prefix));
    s.emplace_back("output", RangeText(f.output));
  } else {
    s.emplace_back("data", f.dataset);
  }
  s.emplace_back("temperature", fmt::format("{:g}", f.temperature));
  s.emplace_back("seed", std::to_string(f.seed));
  s.emplace_back("runs", std::to_string(f.repeat));
}

base::Status WriteJson(const std::string& path, const boost::json::object& object) {
  if (path.empty()) return {};
  return base::os::WriteFile(path, boost::json::serialize(object) + "\n");
}

// A path that cannot be written is better known before all is measured. Touches nothing there.
base::Status CheckWritable(const std::string& path) {
  if (path.empty()) return {};
  if (base::os::IsDirectory(path)) {
    return Error{Code::kInvalidArgument, path + " is a folder: name a file"};
  }
  const std::string beside = path + ".check";
  if (const base::Status s = base::os::WriteFile(beside, ""); !s) {
    return Error{Code::kInvalidArgument, path + " cannot be written: its folder must exist"};
  }
  std::error_code ec;
  std::filesystem::remove(beside, ec);
  return {};
}

// Every answer that came should have told its ids.
bool IdsMissing(const Results& results) {
  for (const Point& p : results.points) {
    for (const RunRecord& run : p.runs) {
      for (const RequestRecord& r : run.requests) {
        if (r.ok() && static_cast<int64_t>(r.ids.size()) != r.output_tokens) return true;
      }
    }
  }
  return false;
}

}  // namespace

int Serve(ServeFlags f) {
  if (!f.options.model.empty()) {
    const base::Status fetched = FetchModel(f.options);
    if (!fetched) return Fail(kName, fetched.error());
  }
  for (const auto& [flag, path] :
       {std::pair("--output-json", &f.output_json), std::pair("--output-token-ids", &f.output_ids),
        std::pair("--report", &f.report)}) {
    if (const base::Status s = CheckWritable(*path); !s) return Fail(kName, s.error().In(flag));
  }
  Side side;
  const base::Status ready = f.url.empty() ? LoadEngine(f, side) : Connect(f, side);
  if (!ready) return Fail(kName, ready.error());
  Results results;
  Describe(f, side, results);
  if (const base::Status s = MeasureAll(f, side, results); !s) return Fail(kName, s.error());

  // Of nothing there are no figures: the errors say it all.
  if (results.completed() > 0) fmt::print("{}", Table(results));
  std::fflush(stdout);
  base::Status written = WriteJson(f.output_json, ToJson(results, f.detailed));
  if (written)
    written =
        f.output_ids.empty() ? base::Status() : WriteJson(f.output_ids, TokenIdsJson(results));
  if (written && !f.report.empty()) written = base::os::WriteFile(f.report, Report(results));
  if (!written) return Fail(kName, written.error());
  for (const std::string& e : results.Errors()) fmt::print(stderr, "{}: {}\n", kName, e);
  if (!f.output_ids.empty() && IdsMissing(results)) {
    return Fail(kName, {Code::kUnsupported,
                        "--output-token-ids: the server did not give the ids of all tokens "
                        "(return_token_ids)"});
  }
  return results.failed() > 0 ? 1 : 0;
}

int Profile(ServeFlags f) {
  const base::Status fetched = FetchModel(f.options);
  if (!fetched) return Fail(kName, fetched.error());
  const ProfileOptions o{.batch = f.batch,
                         .context = f.input.low,
                         .first = f.profile_lengths[0],
                         .second = f.profile_lengths[1]};
  f.options.max_num_seqs = o.batch;
  if (f.options.max_model_len == 0) f.options.max_model_len = o.context + o.second;
  if (o.context + o.second > f.options.max_model_len) {
    return Fail(kName, {Code::kInvalidArgument,
                        fmt::format("--max-model-len {} is below --input-len and "
                                    "--profile-lengths together, {}",
                                    f.options.max_model_len, o.context + o.second)});
  }
  ShowProgress(f.options);
  base::Result<std::unique_ptr<vllm::engine::Llm>> llm = vllm::engine::Llm::Load(f.options);
  if (!llm) return Fail(kName, llm.error());
  const base::Result<KernelProfile> profile = ProfileDecode(**llm, o);
  if (!profile) return Fail(kName, profile.error());
  fmt::print("{}", ProfileTable(*profile));
  boost::json::object json = ProfileJson(*profile);
  json["command"] = f.command;
  json["date"] = DateText();
  json["machine"] = ProcessorText();
  json["device"] = (*llm)->backend().TargetName();
  json["model"] = f.options.model;
  if (const base::Status s = WriteJson(f.output_json, json); !s) return Fail(kName, s.error());
  return 0;
}

}  // namespace apps::bench
