#include "vllm/text/gguf_pre.h"

#include <algorithm>

namespace vllm::text {
namespace {

using Names = std::vector<std::string_view>;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits3 = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPlainQwen2 =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCjk = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view kDeepSeek3 =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kNewlines = R"([^\n]+|[\n]+)";
// Cased letters of the scripts that DeepSeek's first models knew.
constexpr std::string_view kCasedLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-"
    "\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-"
    "\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-"
    "\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-"
    "\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-"
    "\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view kWidePunctuation =
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view kCjkHangul = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";

GgufPre Make(std::vector<std::string_view> patterns, bool ignore_merges = false,
             bool add_bos = false) {
  GgufPre p;
  p.patterns = std::move(patterns);
  p.ignore_merges = ignore_merges;
  p.add_bos = add_bos;
  return p;
}

GgufPre WithNfc(GgufPre p) {
  p.nfc = true;
  return p;
}

GgufPre Spaced(bool whole_newlines) {
  GgufPre p = Make({kNewlines});
  p.byte_level = false;
  p.whole_newlines = whole_newlines;
  return p;
}

bool In(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool FindGgufPre(std::string_view name, GgufPre* pre) {
  if (name.empty() || name == "default") {
    *pre = Make({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"});
  } else if (In(name, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral",
                       "midm-2.0", "lfm2", "jina-v5-nano"})) {
    *pre = Make({kLlama3}, true, true);
  } else if (In(name, {"dbrx", "smaug-bpe", "chatglm-bpe"})) {
    *pre = Make({kLlama3});
  } else if (In(name, {"glm4", "glm5"})) {
    *pre = Make({kLlama3}, true);
  } else if (In(name, {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2"})) {
    *pre = WithNfc(Make({kQwen2}));
  } else if (In(name, {"stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"})) {
    *pre = Make({kQwen2});
  } else if (name == "qwen35") {
    *pre = Make({kQwen35});  // published vectors for this name leave decomposed text as it is
  } else if (name == "ufakzeka") {
    *pre = Make({kPlainQwen2});
  } else if (name == "laguna") {
    *pre = Make({kNewlines, kQwen2});
  } else if (name == "minicpm5") {
    *pre = Make(
        {kDigits3,
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
        true);
  } else if (In(name, {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"})) {
    *pre = Make({kDigits3, kCjk, kDeepSeek3});
  } else if (name == "deepseek-llm") {
    *pre = Make({"[\r\n]", kCasedLetters, kWidePunctuation, R"(\s+\z)", kCjkHangul, R"(\p{N}+)"});
  } else if (name == "deepseek-coder") {
    *pre = Make({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkHangul, kDigit});
  } else if (name == "falcon") {
    *pre = Make({R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"});
  } else if (In(name, {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone",
                       "minerva-7b", "mellum2"})) {
    *pre = Make({kDigit, kGpt2});
  } else if (In(name, {"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion",
                       "granite-docling", "jina-es", "jina-de", "gigachat", "jina-v2-es",
                       "jina-v2-de", "a.x-4.0", "mellum", "modern-bert", "exaone4"})) {
    *pre = Make({kGpt2});
  } else if (In(name, {"jina-v1-en", "jina-v2-code", "roberta-bpe"})) {
    *pre = Make({kGpt2});
    pre->add_sep = true;
  } else if (name == "tekken") {
    *pre = Make({kTekken}, true, true);
  } else if (In(name, {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"})) {
    *pre = Make({kGpt4o});
  } else if (In(name, {"tiny_aya", "cohere2moe"})) {
    *pre = Make({R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o});
  } else if (name == "youtu") {
    *pre =
        Make({"[\uac00-\ud7a3\u3131-\u318e]+|["
              "\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-"
              "\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
              kYoutu},
             true);
  } else if (In(name, {"poro-chat", "bloom", "gpt3-finnish"})) {
    *pre = Make({kBloom});
  } else if (name == "viking") {
    *pre = Make({kBloom, kDigit});
  } else if (name == "chameleon") {
    *pre = Make({"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
                 kDigit, R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
                false, true);
  } else if (name == "superbpe") {
    *pre = Make({R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"});
  } else if (In(name, {"bailingmoe", "bailingmoe2", "llada-moe"})) {
    *pre = Make(
        {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"});
  } else if (name == "seed-coder") {
    *pre = Make(
        {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"});
  } else if (name == "exaone-moe") {
    *pre = Make(
        {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"});
  } else if (In(name, {"gemma4", "granite-embed-multi-311m"})) {
    *pre = Spaced(true);
    pre->add_bos = true;
  } else if (name == "sarvam-moe") {
    *pre = Spaced(false);
  } else {
    return false;
  }
  return true;
}

}  // namespace vllm::text
