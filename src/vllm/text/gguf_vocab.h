// The vocabulary that a GGUF file carries in its metadata, as plain data: the loader fills it,
// Tokenizer::FromGguf reads it. Field names follow the `tokenizer.ggml.*` keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm::text {

struct GgufVocab {
  // Values of tokenizer.ggml.token_type.
  static constexpr int32_t kNormal = 1;
  static constexpr int32_t kUnknown = 2;
  static constexpr int32_t kControl = 3;      // matched in text only when parse_special
  static constexpr int32_t kUserDefined = 4;  // always matched in text
  static constexpr int32_t kUnused = 5;
  static constexpr int32_t kByte = 6;  // "<0x0A>"

  std::string model;         // tokenizer.ggml.model: "gpt2", "llama", "bert", "t5", "gemma4"
  std::string pre;           // tokenizer.ggml.pre, for byte-level BPE; empty means "default"
  std::string architecture;  // general.architecture; a few old files need it, empty is fine
  std::string name;          // general.name; likewise

  // Views or copies of the strings; they need not outlive FromGguf.
  std::vector<std::string_view> tokens;
  std::vector<float> scores;             // empty, or one a token
  std::vector<int32_t> token_types;      // empty, or one a token
  std::vector<std::string_view> merges;  // "left right"

  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id, sep_id, cls_id, mask_id;
  // Absent: the kind's default (llama: BOS and space prefix; bert: CLS and SEP; t5: EOS; gpt2: by
  // `pre`).
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix;
  bool remove_extra_whitespaces = false;
  bool treat_whitespace_as_suffix = false;  // refused when set
  std::optional<bool> lowercase;            // bert: tokenizer.ggml.normalizer.lowercase
  std::optional<bool> strip_accents;        // bert: tokenizer.ggml.normalizer.strip_accents
  std::string_view precompiled_charsmap;    // t5: tokenizer.ggml.precompiled_charsmap, raw bytes
};

}  // namespace vllm::text
