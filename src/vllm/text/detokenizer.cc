#include "vllm/text/detokenizer.h"

#include "vllm/text/decoder.h"
#include "vllm/text/tokenizer_parts.h"

namespace vllm::text {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      state_(std::make_unique<DecoderState>(tokenizer.parts_->decoder)) {}
IncrementalDetokenizer::~IncrementalDetokenizer() = default;
IncrementalDetokenizer::IncrementalDetokenizer(IncrementalDetokenizer&&) noexcept = default;
IncrementalDetokenizer& IncrementalDetokenizer::operator=(IncrementalDetokenizer&&) noexcept =
    default;

void IncrementalDetokenizer::Prime(std::span<const int32_t> ids) {
  for (const int32_t id : ids) Push(id);
}

std::string IncrementalDetokenizer::Push(int32_t id) {
  std::string out;
  if (!tokenizer_->HasToken(id) || (skip_special_tokens_ && tokenizer_->IsSpecial(id))) return out;
  state_->Push(tokenizer_->TokenText(id), &out);
  return out;
}

std::string IncrementalDetokenizer::Finish() {
  std::string out;
  state_->Finish(&out);
  return out;
}

}  // namespace vllm::text
