// Loading tekken.json, the tokenizer file of Mistral's own format: special tokens by their ids,
// then the byte strings of a tiktoken vocabulary in the order of their ranks.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/base64.h"
#include "vllm/text/bpe.h"
#include "vllm/text/json_fields.h"
#include "vllm/text/tokenizer_parts.h"
#include "vllm/text/unicode.h"

namespace vllm::text {
namespace {

namespace json = boost::json;

// Of files before version 11, which may leave them out.
constexpr std::string_view kFirstSpecials[] = {"<unk>",
                                               "<s>",
                                               "</s>",
                                               "[INST]",
                                               "[/INST]",
                                               "[AVAILABLE_TOOLS]",
                                               "[/AVAILABLE_TOOLS]",
                                               "[TOOL_RESULTS]",
                                               "[/TOOL_RESULTS]",
                                               "[TOOL_CALLS]",
                                               "[IMG]",
                                               "<pad>",
                                               "[IMG_BREAK]",
                                               "[IMG_END]",
                                               "[PREFIX]",
                                               "[MIDDLE]",
                                               "[SUFFIX]",
                                               "[SYSTEM_PROMPT]",
                                               "[/SYSTEM_PROMPT]",
                                               "[TOOL_CONTENT]"};
constexpr size_t kBytes = 256;

// Appends what base64 says, as GPT-2's stand-ins for bytes.
bool AppendStandIns(std::string_view base64, std::string* out) {
  const std::optional<std::string> bytes = base::DecodeBase64(base64);
  if (!bytes || bytes->empty()) return false;
  for (const char c : *bytes) AppendUtf8(ByteToStandIn(static_cast<uint8_t>(c)), out);
  return true;
}

class Loader {
 public:
  explicit Loader(TokenizerParts* parts) : p_(*parts) {}
  base::Status Load(const json::object& root);

 private:
  base::Status LoadSpecials(const json::object& root, int64_t count);
  base::Status LoadRanks(const json::object& root, size_t count);
  base::Status LoadSettings(const json::object& root);

  TokenizerParts& p_;
};

// Ids that the file gives no name are called so by its own reader.
base::Status Loader::LoadSpecials(const json::object& root, int64_t count) {
  std::vector<std::string> names;
  if (IsNull(root, "special_tokens")) {
    names.assign(std::begin(kFirstSpecials), std::end(kFirstSpecials));
  } else {
    auto list = ArrayField(root, "special_tokens", "tekken.json");
    if (!list.ok()) return list.error();
    for (size_t i = 0; i < (*list)->size(); ++i) {
      const std::string where = fmt::format("special_tokens[{}]", i);
      auto token = AsObject((**list)[i], where);
      if (!token.ok()) return token.error();
      auto rank = base::JsonInt(**token, "rank", -1);
      if (!rank.ok()) return rank.error().In(where);
      auto text = base::JsonString(**token, "token_str", "");
      if (!text.ok()) return text.error().In(where);
      if (*rank != static_cast<int64_t>(i) || text->empty())
        return Corrupt(fmt::format("{}: needs a token_str, and rank {}", where, i));
      if (text->size() > AddedTokens::kMaxBytes)
        return Corrupt(
            fmt::format("{}: token_str has more than {} bytes", where, AddedTokens::kMaxBytes));
      names.push_back(*std::move(text));
    }
  }
  if (static_cast<int64_t>(names.size()) > count) {
    return Corrupt(
        fmt::format("there are {} special_tokens, but config.default_num_special_tokens "
                    "is {}",
                    names.size(), count));
  }
  for (int64_t id = 0; id < count; ++id) {
    AddedToken token;
    token.content = id < static_cast<int64_t>(names.size()) ? names[static_cast<size_t>(id)]
                                                            : fmt::format("<SPECIAL_{}>", id);
    token.id = static_cast<int32_t>(id);
    token.special = true;
    if (p_.vocab.Find(token.content) >= 0)
      return Corrupt(
          fmt::format("special_tokens: \"{}\" is there twice", base::Printable(token.content)));
    if (auto s = p_.vocab.Add(token.content, id); !s.ok()) return s.error().In("special_tokens");
    if (auto s = p_.AddToken(token); !s.ok()) return s.error().In("special_tokens");
  }
  p_.bos = p_.unk = p_.eos = p_.pad = std::nullopt;
  const auto find = [&](std::string_view text) {
    const int32_t id = p_.vocab.Find(text);
    return id < 0 ? std::nullopt : std::optional<int32_t>(id);
  };
  p_.unk = find("<unk>");
  p_.bos = find("<s>");
  p_.eos = find("</s>");
  p_.pad = find("<pad>");
  if (!p_.bos || !p_.eos) return Corrupt("special_tokens: <s> and </s> must be among them");
  p_.prefix = {*p_.bos};
  return {};
}

base::Status Loader::LoadRanks(const json::object& root, size_t count) {
  auto list = ArrayField(root, "vocab", "tekken.json");
  if (!list.ok()) return list.error();
  if (count < kBytes || count > (*list)->size()) {
    return Corrupt(
        fmt::format("config.default_vocab_size leaves {} tokens that are not special: "
                    "it must be 256 to the {} of \"vocab\"",
                    count, (*list)->size()));
  }
  const int32_t specials = p_.vocab.size();
  // Special tokens are texts, and these are stand-ins for bytes: a text may be both.
  Vocab ranks;
  std::string name;
  for (size_t i = 0; i < count; ++i) {
    const std::string where = fmt::format("vocab[{}]", i);
    auto token = AsObject((**list)[i], where);
    if (!token.ok()) return token.error();
    auto rank = base::JsonInt(**token, "rank", -1);
    if (!rank.ok()) return rank.error().In(where);
    if (*rank != static_cast<int64_t>(i))
      return Corrupt(fmt::format("{}: rank is {} and must be {}", where, *rank, i));
    const json::value* bytes = (*token)->if_contains("token_bytes");
    name.clear();
    if (bytes == nullptr || !bytes->is_string() ||
        !AppendStandIns(std::string_view(bytes->get_string()), &name))
      return Corrupt(fmt::format("{}: token_bytes is no base64 of one byte or more", where));
    std::string byte;
    if (i < kBytes) AppendUtf8(ByteToStandIn(static_cast<uint8_t>(i)), &byte);
    if (i < kBytes && name != byte)
      return Corrupt(fmt::format("{}: the first 256 tokens must be the bytes in order", where));
    if (const int32_t twin = ranks.Find(name); twin >= 0)
      return Corrupt(fmt::format("{}: has the bytes of vocab[{}]", where, twin));
    if (auto s = ranks.Add(name, static_cast<int64_t>(i)); !s.ok()) return s.error().In(where);
    if (auto s = p_.vocab.Add(name, specials + static_cast<int64_t>(i)); !s.ok())
      return s.error().In(where);
  }
  return {};
}

// What a request may set, and what stands there where it doesn't.
base::Status Loader::LoadSettings(const json::object& root) {
  constexpr const char* kWhere = "model_settings_builder";
  if (IsNull(root, kWhere)) return {};
  auto settings = AsObject(root.at(kWhere), kWhere);
  if (!settings.ok()) return settings.error();
  p_.instruct.settings = true;
  if (IsNull(**settings, "reasoning_effort")) return {};
  auto effort = AsObject((*settings)->at("reasoning_effort"), "reasoning_effort");
  if (!effort.ok()) return effort.error().In(kWhere);
  auto values = ArrayField(**effort, "values", "reasoning_effort");
  if (!values.ok()) return values.error().In(kWhere);
  for (const json::value& value : **values) {
    if (!value.is_string()) return Corrupt("reasoning_effort.values must be texts").In(kWhere);
    p_.instruct.efforts.emplace_back(value.get_string());
  }
  auto usual = base::JsonString(**effort, "default", "");
  if (!usual.ok()) return usual.error().In(kWhere);
  const auto& efforts = p_.instruct.efforts;
  if (std::find(efforts.begin(), efforts.end(), *usual) == efforts.end())
    return Corrupt("reasoning_effort.default must be one of its values").In(kWhere);
  p_.instruct.effort = *std::move(usual);
  return {};
}

base::Status Loader::Load(const json::object& root) {
  const json::value* c = root.if_contains("config");
  if (c == nullptr) return Corrupt("\"config\" is missing: this is no tekken.json");
  auto config = AsObject(*c, "config");
  if (!config.ok()) return config.error();
  auto pattern = base::JsonString(**config, "pattern", "");
  if (!pattern.ok()) return pattern.error().In("config");
  if (pattern->empty()) return Corrupt("config: \"pattern\" is missing");
  auto version = base::JsonString(**config, "version", "");
  if (!version.ok()) return version.error().In("config");
  p_.instruct.version = *std::move(version);
  auto size = base::JsonInt(**config, "default_vocab_size", -1);
  if (!size.ok()) return size.error().In("config");
  auto specials = base::JsonInt(**config, "default_num_special_tokens", -1);
  if (!specials.ok()) return specials.error().In("config");
  // More than there are is refused before anything is made of the counts.
  constexpr int64_t kMostSpecials = 1 << 16;
  if (*specials < 3 || *specials > kMostSpecials || *size < *specials || *size > Vocab::kMaxId)
    return Corrupt(
        fmt::format("config: default_vocab_size {} and default_num_special_tokens {} "
                    "are no counts of tokens",
                    *size, *specials));
  if (auto s = LoadSpecials(root, *specials); !s.ok()) return s;
  if (auto s = LoadRanks(root, static_cast<size_t>(*size - *specials)); !s.ok()) return s;
  if (auto s = LoadSettings(root); !s.ok()) return s;

  auto split = MakeSplit(*pattern, false, SplitBehavior::kIsolated, false);
  if (!split.ok()) return split.error().In("config.pattern");
  p_.pre_tokenizers.push_back(std::move(*split));
  std::vector<uint8_t> control = p_.special;
  control.resize(static_cast<size_t>(p_.vocab.size()));
  BpeSpec spec;
  spec.vocab = &p_.vocab;
  spec.byte_level = true;
  spec.by_id = true;
  spec.ignore_merges = true;
  spec.control = &control;
  auto model = BpeModel::Create(spec);
  if (!model.ok()) return model.error().In("vocab");
  p_.model = std::move(*model);
  DecoderStep step;
  step.kind = DecoderStep::Kind::kByteLevel;
  p_.decoder = {step};
  return {};
}

}  // namespace

base::Result<std::unique_ptr<Tokenizer>> Tokenizer::FromTekken(const json::value& value,
                                                               const TokenizerOptions& options) {
  return LoadWith<Loader>(value, options);
}

}  // namespace vllm::text
