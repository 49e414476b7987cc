// What a Tokenizer is made of; the loaders fill it. Private to this room.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "vllm/text/added_tokens.h"
#include "vllm/text/decoder.h"
#include "vllm/text/json_fields.h"
#include "vllm/text/model.h"
#include "vllm/text/normalizer.h"
#include "vllm/text/pretokenizer.h"
#include "vllm/text/tokenizer.h"
#include "vllm/text/vocab.h"

namespace vllm::text {

// What one Encode call needs besides the tokenizer itself.
struct EncodeState {
  Scratch scratch;
  PreTokens tokens;
  std::string valid, normalized;
  std::vector<Section> sections, inner;
};

// States wait here between calls, so that each thread finds a warm word cache without sharing one.
class StatePool {
 public:
  std::unique_ptr<EncodeState> Take();
  void Return(std::unique_ptr<EncodeState> state);

 private:
  static constexpr size_t kKept = 16;  // some 1.5 MiB each
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeState>> free_;
};

// What stands around two texts.
struct PairTemplate {
  std::vector<int32_t> before, between, after;
  bool segments = false;  // the second text and what follows it are of segment 1
};

struct TokenizerParts {
  Vocab vocab;
  std::vector<uint8_t> special;  // by id
  AddedTokens raw_added;         // matched before normalization
  AddedTokens normalized_added;  // and after
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<Model> model;
  std::vector<int32_t> prefix, suffix;  // of the template
  std::optional<PairTemplate> pair;
  DecoderSteps decoder;
  std::optional<int32_t> bos, eos, pad, unk;
  InstructFormat instruct;
  mutable StatePool pool;

  // Registers a token that is cut out of the text. REQUIRES: it is in `vocab`, and the normalizers
  // are there.
  base::Status AddToken(const AddedToken& token);
  // `text` (any bytes); control tokens count only in `special_ranges`, or everywhere when that is
  // null.
  base::Status Encode(std::string_view text, const std::vector<Span>* special_ranges,
                      std::vector<int32_t>* out) const;

  static std::unique_ptr<Tokenizer> Wrap(std::unique_ptr<TokenizerParts> parts) {
    return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
  }

 private:
  base::Status EncodeSection(std::string_view text, bool at_start, const std::vector<Span>& ranges,
                             EncodeState* state, std::vector<int32_t>* out) const;
  base::Status EncodeText(std::string_view normalized, bool at_start, EncodeState* state,
                          std::vector<int32_t>* out) const;
};

// Settles BOS and the like where a configuration says more than the tokenizer's own file.
base::Status ApplyOptions(const TokenizerOptions& options, TokenizerParts* parts);

// What Loader, which is made of parts, Loads from a file that is an object.
template <class Loader>
base::Result<std::unique_ptr<Tokenizer>> LoadWith(const boost::json::value& value,
                                                  const TokenizerOptions& options) {
  auto root = AsObject(value, "the file");
  if (!root.ok()) return root.error();
  auto parts = std::make_unique<TokenizerParts>();
  Loader loader(parts.get());
  if (auto s = loader.Load(**root); !s.ok()) return s.error();
  if (auto s = ApplyOptions(options, parts.get()); !s.ok()) return s.error();
  return TokenizerParts::Wrap(std::move(parts));
}

}  // namespace vllm::text
