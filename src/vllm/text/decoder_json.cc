// The "decoder" of a tokenizer.json.
#include "vllm/text/decoder.h"
#include "vllm/text/json_fields.h"

namespace vllm::text {
namespace {

using Kind = DecoderStep::Kind;
constexpr size_t kMaxSteps = 64;  // a stream goes through them by recursion

DecoderStep Make(Kind kind) {
  DecoderStep s;
  s.kind = kind;
  return s;
}

base::Status ParseStrip(const boost::json::object& o, DecoderStep* s) {
  auto content = base::JsonString(o, "content", " ");
  if (!content.ok()) return content.error().In("decoder Strip");
  auto start = base::JsonInt(o, "start", 0);
  if (!start.ok()) return start.error().In("decoder Strip");
  auto stop = base::JsonInt(o, "stop", 0);
  if (!stop.ok()) return stop.error().In("decoder Strip");
  if (content->empty() || *start < 0 || *stop < 0)
    return Corrupt("decoder Strip: needs a character and counts");
  s->from = *content;
  s->start = static_cast<size_t>(*start);
  s->stop = static_cast<size_t>(*stop);
  return {};
}

base::Status ParseMetaspace(const boost::json::object& o, DecoderStep* s) {
  auto mark = base::JsonString(o, "replacement", "\u2581");
  if (!mark.ok()) return mark.error().In("decoder Metaspace");
  auto legacy = base::JsonBool(o, "add_prefix_space", true);
  if (!legacy.ok()) return legacy.error().In("decoder Metaspace");
  auto scheme = base::JsonString(o, "prepend_scheme", *legacy ? "always" : "never");
  if (!scheme.ok()) return scheme.error().In("decoder Metaspace");
  s->from = *mark;
  s->flag = *scheme != "never";
  return {};
}

base::Status ParseReplace(const boost::json::object& o, DecoderStep* s) {
  auto pattern = PatternField(o, "decoder Replace");
  if (!pattern.ok()) return pattern.error();
  auto content = base::JsonString(o, "content", "");
  if (!content.ok()) return content.error().In("decoder Replace");
  s->from = pattern->text;
  s->to = *content;
  if (!pattern->literal) {
    auto regex = Regex::Compile(pattern->text);
    if (!regex.ok()) return regex.error().In("decoder Replace");
    s->regex = std::move(*regex);
  }
  return {};
}

// Reads up to two strings and a flag, each under its own key; an empty key is skipped.
base::Status ParseTexts(const boost::json::object& o, std::string_view type, const char* from,
                        const char* from_default, const char* to, const char* to_default,
                        const char* flag, DecoderStep* s) {
  auto f = base::JsonString(o, from, from_default);
  if (!f.ok()) return f.error().In(fmt::format("decoder {}", type));
  s->from = *f;
  if (*to != '\0') {
    auto t = base::JsonString(o, to, to_default);
    if (!t.ok()) return t.error().In(fmt::format("decoder {}", type));
    s->to = *t;
  }
  if (*flag != '\0') {
    auto b = base::JsonBool(o, flag, true);
    if (!b.ok()) return b.error().In(fmt::format("decoder {}", type));
    s->flag = *b;
  }
  return {};
}

base::Status Parse(const boost::json::value& json, DecoderSteps* out) {
  auto object = AsObject(json, "decoder");
  if (!object.ok()) return object.error();
  const boost::json::object& o = **object;
  auto type = base::JsonString(o, "type", "");
  if (!type.ok()) return type.error();
  if (*type == "Sequence") {
    auto steps = ArrayField(o, "decoders", "decoder Sequence");
    if (!steps.ok()) return steps.error();
    for (const auto& step : **steps) {
      if (auto s = Parse(step, out); !s.ok()) return s;
    }
    return {};
  }
  if (out->size() >= kMaxSteps)
    return Unsupported(fmt::format("decoder has more than {} steps", kMaxSteps));
  DecoderStep step;
  base::Status status;
  if (*type == "ByteLevel") {
    step = Make(Kind::kByteLevel);
  } else if (*type == "ByteFallback") {
    step = Make(Kind::kByteFallback);
  } else if (*type == "Fuse") {
    step = Make(Kind::kFuse);
  } else if (*type == "Replace") {
    step = Make(Kind::kReplace);
    status = ParseReplace(o, &step);
  } else if (*type == "Strip") {
    step = Make(Kind::kStrip);
    status = ParseStrip(o, &step);
  } else if (*type == "Metaspace") {
    step = Make(Kind::kMetaspace);
    status = ParseMetaspace(o, &step);
  } else if (*type == "WordPiece") {
    step = Make(Kind::kWordPiece);
    status = ParseTexts(o, *type, "prefix", "##", "", "", "cleanup", &step);
  } else if (*type == "BPEDecoder") {
    step = Make(Kind::kBpe);
    status = ParseTexts(o, *type, "suffix", "</w>", "", "", "", &step);
  } else if (*type == "CTC") {
    step = Make(Kind::kCtc);
    status =
        ParseTexts(o, *type, "pad_token", "<pad>", "word_delimiter_token", "|", "cleanup", &step);
  } else {
    return Unsupported(fmt::format("decoder \"{}\" is not implemented", base::Printable(*type)));
  }
  if (!status.ok()) return status;
  out->push_back(std::move(step));
  return {};
}

}  // namespace

base::Result<DecoderSteps> ParseDecoder(const boost::json::value& json) {
  DecoderSteps out;
  if (json.is_null()) {
    out.push_back(Make(Kind::kJoin));
    return out;
  }
  if (auto s = Parse(json, &out); !s.ok()) return s.error();
  return out;
}

}  // namespace vllm::text
