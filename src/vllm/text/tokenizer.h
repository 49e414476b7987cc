// Text to token ids and back, for every tokenizer.json, tekken.json and GGUF vocabulary that
// published models use.
//
// Text goes through: cutting out added tokens -> normalizer -> pre-tokenizer -> model (BPE,
// Unigram, WordPiece) -> template (BOS and the like). Ids go back through the decoder chain.
// Anything in a file that is not implemented is refused by name at load: an unknown part would give
// plausible but wrong ids.
//
// Input that is not UTF-8 is read with U+FFFD in place of each invalid sequence. Unicode data:
// utf8proc's (15.0).
#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "vllm/text/gguf_vocab.h"

namespace vllm::text {

class DecoderState;
struct TokenizerParts;

// What tokenizer_config.json says beside tokenizer.json. Everything may be left out.
struct TokenizerOptions {
  std::string bos_token, eos_token, pad_token,
      unk_token;  // token texts; empty: none, or found in tokenizer.json
  std::optional<bool>
      add_bos_token;  // true: exactly one BOS in front; false: none; absent: as the template says
  std::optional<bool> add_eos_token;  // likewise behind
};

struct EncodeOptions {
  // BOS, EOS, CLS, SEP as the model's template says. A text that itself begins with the BOS token
  // (and parse_special) doesn't get a second one in front of it.
  bool add_special_tokens = true;
  // Whether the text of a control token ("<|im_end|>") becomes its id. False for what a user typed.
  // Added tokens that aren't special ("<think>" of Qwen3) are cut out either way: the model was
  // trained so.
  bool parse_special = true;
};

struct Segment {
  std::string_view text;
  bool parse_special = true;
};

// How conversations are written for a model, as its tekken.json says.
struct InstructFormat {
  std::string version;  // "v13"; empty: the file doesn't say, or is of another kind
  // Of version 15: whether there are settings at all, how hard the model may be told to think
  // (empty: it may not), and what it is told where nobody asks.
  bool settings = false;
  std::vector<std::string> efforts;
  std::string effort;
};

// Immutable after load; every method is const and thread-safe.
class Tokenizer {
 public:
  // `json`: a parsed tokenizer.json. Errors: kCorrupt or kUnsupported, naming the field.
  static base::Result<std::unique_ptr<Tokenizer>> FromJson(const boost::json::value& json,
                                                           const TokenizerOptions& options = {});
  // `json`: a parsed tekken.json, as Mistral's models bring it. Its special tokens are all control
  // tokens.
  static base::Result<std::unique_ptr<Tokenizer>> FromTekken(const boost::json::value& json,
                                                             const TokenizerOptions& options = {});
  // A directory with tokenizer.json, else tekken.json, and perhaps tokenizer_config.json,
  // special_tokens_map.json. Errors name the file.
  static bool InDirectory(const std::string& path);  // has it one of both?
  static base::Result<std::unique_ptr<Tokenizer>> FromDirectory(const std::string& path);
  // A GGUF file's metadata. Errors name the `tokenizer.ggml.*` key.
  static base::Result<std::unique_ptr<Tokenizer>> FromGguf(const GgufVocab& vocab);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Errors: kUnsupported when a vocabulary has no token for some character and no unknown token;
  // kResourceExhausted when a tokenizer's regex exceeds its match limits on this text.
  base::Result<std::vector<int32_t>> Encode(std::string_view text,
                                            const EncodeOptions& options = {}) const;

  // Two texts as one, as models that compare them want. Errors: also kUnsupported where the
  // tokenizer has no template for it.
  struct Pair {
    std::vector<int32_t> ids;
    int64_t first_segment;  // so many tokens are of segment 0, the others of segment 1
  };
  base::Result<Pair> EncodePair(std::string_view first, std::string_view second) const;

  // As Encode of the concatenated texts, but control tokens are recognised only inside runs of
  // segments with parse_special, so a message's content cannot forge them. Neighbouring segments
  // are tokenised as one text.
  base::Result<std::vector<int32_t>> EncodeSegments(std::span<const Segment> segments,
                                                    bool add_special_tokens) const;

  // Ids that don't exist are skipped. Bytes that aren't UTF-8 come out as U+FFFD.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Ids are in [0, vocab_size()); an id inside without a token is a hole (HasToken is false).
  int32_t vocab_size() const;
  bool HasToken(int32_t id) const;
  bool IsSpecial(int32_t id) const;  // a control token: hidden by skip_special_tokens
  // The token as the vocabulary writes it ("Ġhello", "▁hello", "<0x0A>"); empty for a hole.
  std::string_view TokenText(int32_t id) const;
  std::optional<int32_t> TokenId(std::string_view token_text) const;
  // The bytes this token adds to a text (" hello", "\n"), whole characters or not; a special token
  // gives its own text.
  std::string TokenBytes(int32_t id) const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  std::optional<int32_t> unk_id() const;
  // Whether Encode(add_special_tokens) puts the BOS token in front.
  bool adds_bos() const;
  const InstructFormat& instruct_format() const;

 private:
  friend class IncrementalDetokenizer;
  friend struct TokenizerParts;
  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);

  std::unique_ptr<TokenizerParts> parts_;
};

}  // namespace vllm::text
