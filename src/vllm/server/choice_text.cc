#include "vllm/server/choice_text.h"

namespace vllm::server {

int64_t CountCharacters(std::string_view bytes) {
  int64_t n = 0;
  for (const char c : bytes) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

ChoiceText::ChoiceText(const text::Tokenizer* tokenizer, const engine::SamplingParams& params,
                       std::span<const int32_t> prompt_tail, std::unique_ptr<ToolParser> tools,
                       int64_t offset)
    : tokenizer_(tokenizer),
      text_(tokenizer, params, prompt_tail),
      tools_(std::move(tools)),
      skip_special_(params.skip_special_tokens),
      characters_(offset) {}

Delta ChoiceText::Push(int32_t token, bool is_end, const engine::TokenLogprobs* logprobs) {
  engine::OutputText::Piece piece = text_.Push(token, is_end);
  if (logprobs != nullptr && tokenizer_ != nullptr && !is_end) {
    Waiting w;
    w.entry.logprob = engine::Describe(*tokenizer_, *logprobs);
    const std::string& bytes = w.entry.logprob.bytes;
    const bool inside = !bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80;
    w.entry.offset = characters_ - (inside && characters_ > 0 ? 1 : 0);
    w.start = decoded_;
    if (!(skip_special_ && tokenizer_->IsSpecial(token))) {
      decoded_ += bytes.size();
      characters_ += CountCharacters(bytes);
    }
    waiting_.push_back(std::move(w));
  }
  Delta delta;
  delta.stopped = piece.stopped;
  delta.stop = std::move(piece.stop);
  Release(std::move(piece.text), false, delta);
  if (delta.stopped) {
    waiting_.clear();
    if (tools_ != nullptr) {
      ToolOutput rest = tools_->Finish();
      delta.content += rest.content;
      delta.reasoning += rest.reasoning;
    }
  }
  return delta;
}

Delta ChoiceText::Finish() {
  Delta delta;
  Release(text_.Finish(), true, delta);
  if (tools_ != nullptr) {
    ToolOutput rest = tools_->Finish();
    delta.content += rest.content;
    delta.reasoning += rest.reasoning;
  }
  return delta;
}

void ChoiceText::Release(std::string text, bool all, Delta& delta) {
  released_ += text.size();
  while (!waiting_.empty() && (all || waiting_.front().start < released_)) {
    delta.entries.push_back(std::move(waiting_.front().entry));
    waiting_.pop_front();
  }
  if (tools_ == nullptr) {
    delta.content = std::move(text);
    return;
  }
  ToolOutput parsed = tools_->Push(text);
  delta.content = std::move(parsed.content);
  delta.reasoning = std::move(parsed.reasoning);
  delta.calls = std::move(parsed.calls);
}

}  // namespace vllm::server
