// The "pre_tokenizer" of a tokenizer.json.
#include "vllm/text/json_fields.h"
#include "vllm/text/pretokenizer.h"

namespace vllm::text {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

base::Result<SplitBehavior> ParseBehavior(const boost::json::object& o, std::string_view what,
                                          std::string_view fallback) {
  auto name = base::JsonString(o, "behavior", fallback);
  if (!name.ok()) return name.error();
  if (*name == "Removed") return SplitBehavior::kRemoved;
  if (*name == "Isolated") return SplitBehavior::kIsolated;
  if (*name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (*name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (*name == "Contiguous") return SplitBehavior::kContiguous;
  return Unsupported(
      fmt::format("{}: behavior \"{}\" is not implemented", what, base::Printable(*name)));
}

class Parser {
 public:
  Parser(bool allow_bytes, PreTokenizers* out) : allow_bytes_(allow_bytes), out_(out) {}

  base::Status Parse(const boost::json::value& json, bool last);
  bool ends_in_bytes() const { return ends_in_bytes_; }

 private:
  base::Status ParseByteLevel(const boost::json::object& o, bool last);
  base::Status ParseSplit(const boost::json::object& o);
  base::Status ParseMetaspace(const boost::json::object& o);

  bool allow_bytes_;
  bool ends_in_bytes_ = false;
  PreTokenizers* out_;
};

base::Status Parser::ParseByteLevel(const boost::json::object& o, bool last) {
  auto prefix = base::JsonBool(o, "add_prefix_space", true);
  if (!prefix.ok()) return prefix.error().In("ByteLevel");
  auto regex = base::JsonBool(o, "use_regex", true);
  if (!regex.ok()) return regex.error().In("ByteLevel");
  if (*prefix) out_->push_back(MakePrefix(" ", false));
  if (*regex) {
    auto split = MakeSplit(kGpt2, false, SplitBehavior::kIsolated, false);
    if (!split.ok()) return split.error();
    out_->push_back(std::move(*split));
  }
  if (last && allow_bytes_) {
    ends_in_bytes_ = true;
  } else {
    out_->push_back(MakeByteStandIns());
  }
  return {};
}

base::Status Parser::ParseSplit(const boost::json::object& o) {
  auto pattern = PatternField(o, "Split");
  if (!pattern.ok()) return pattern.error();
  auto behavior = ParseBehavior(o, "Split", "Isolated");
  if (!behavior.ok()) return behavior.error();
  auto invert = base::JsonBool(o, "invert", false);
  if (!invert.ok()) return invert.error().In("Split");
  auto split = MakeSplit(pattern->text, pattern->literal, *behavior, *invert);
  if (!split.ok()) return split.error().In("Split");
  out_->push_back(std::move(*split));
  return {};
}

base::Status Parser::ParseMetaspace(const boost::json::object& o) {
  auto mark = base::JsonString(o, "replacement", "\u2581");
  if (!mark.ok()) return mark.error().In("Metaspace");
  auto legacy = base::JsonBool(o, "add_prefix_space", true);
  if (!legacy.ok()) return legacy.error().In("Metaspace");
  auto scheme = base::JsonString(o, "prepend_scheme", *legacy ? "always" : "never");
  if (!scheme.ok()) return scheme.error().In("Metaspace");
  auto split = base::JsonBool(o, "split", true);
  if (!split.ok()) return split.error().In("Metaspace");
  if (mark->empty()) return Corrupt("Metaspace: \"replacement\" is empty");
  out_->push_back(MakeSpaceToMark(*mark));
  if (*scheme == "always" || *scheme == "first") {
    out_->push_back(MakePrefix(*mark, *scheme == "first"));
  } else if (*scheme != "never") {
    return Unsupported(fmt::format("Metaspace: prepend_scheme \"{}\" is not implemented",
                                   base::Printable(*scheme)));
  }
  if (*split) {
    auto cut = MakeSplit(*mark, true, SplitBehavior::kMergedWithNext, false);
    if (!cut.ok()) return cut.error();
    out_->push_back(std::move(*cut));
  }
  return {};
}

base::Status Parser::Parse(const boost::json::value& json, bool last) {
  auto object = AsObject(json, "pre_tokenizer");
  if (!object.ok()) return object.error();
  const boost::json::object& o = **object;
  auto type = base::JsonString(o, "type", "");
  if (!type.ok()) return type.error();
  if (*type == "Sequence") {
    auto steps = ArrayField(o, "pretokenizers", "pre_tokenizer Sequence");
    if (!steps.ok()) return steps.error();
    for (size_t i = 0; i < (*steps)->size(); ++i) {
      if (auto s = Parse((**steps)[i], last && i + 1 == (*steps)->size()); !s.ok()) return s;
    }
    return {};
  }
  if (*type == "ByteLevel") return ParseByteLevel(o, last);
  if (*type == "Split") return ParseSplit(o);
  if (*type == "Metaspace") return ParseMetaspace(o);
  if (*type == "BertPreTokenizer") {
    out_->push_back(MakeBertSplit());
  } else if (*type == "Whitespace") {
    out_->push_back(MakeWordSplit());
  } else if (*type == "WhitespaceSplit") {
    out_->push_back(MakeCharSplit(CharSet::kSpaces, SplitBehavior::kRemoved));
  } else if (*type == "Digits") {
    auto single = base::JsonBool(o, "individual_digits", false);
    if (!single.ok()) return single.error().In("Digits");
    out_->push_back(MakeCharSplit(CharSet::kDigits,
                                  *single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (*type == "Punctuation") {
    auto behavior = ParseBehavior(o, "Punctuation", "Isolated");
    if (!behavior.ok()) return behavior.error();
    out_->push_back(MakeCharSplit(CharSet::kPunctuation, *behavior));
  } else if (*type == "CharDelimiterSplit") {
    auto delimiter = base::JsonString(o, "delimiter", "");
    if (!delimiter.ok()) return delimiter.error().In("CharDelimiterSplit");
    auto cut = MakeSplit(*delimiter, true, SplitBehavior::kRemoved, false);
    if (!cut.ok()) return cut.error();
    out_->push_back(std::move(*cut));
  } else {
    return Unsupported(
        fmt::format("pre_tokenizer \"{}\" is not implemented", base::Printable(*type)));
  }
  return {};
}

}  // namespace

base::Result<PreTokenizers> ParsePreTokenizer(const boost::json::value& json, bool allow_bytes,
                                              bool* ends_in_bytes) {
  *ends_in_bytes = false;
  PreTokenizers out;
  if (json.is_null()) return out;
  Parser parser(allow_bytes, &out);
  if (auto s = parser.Parse(json, true); !s.ok()) return s.error();
  *ends_in_bytes = parser.ends_in_bytes();
  return out;
}

}  // namespace vllm::text
