// Ids to text one at a time, as generation streams them.
//
//   IncrementalDetokenizer d(tokenizer);
//   for (id : ids) out += d.Push(id);
//   out += d.Finish();
//
// Protocol: Prime* Push* Finish. The pieces joined are exactly Tokenizer::Decode of all pushed ids,
// and every piece is valid UTF-8: bytes of an unfinished character (or of a run of byte tokens,
// which is judged as a whole) wait. One object a stream; not thread-safe. The tokenizer must
// outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "vllm/text/tokenizer.h"

namespace vllm::text {

class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~IncrementalDetokenizer();
  IncrementalDetokenizer(IncrementalDetokenizer&&) noexcept;
  IncrementalDetokenizer& operator=(IncrementalDetokenizer&&) noexcept;

  // Ids in front of the stream (the prompt) whose text isn't wanted, but which decide whether a
  // leading space of the first pushed id is kept. Optional; a few trailing ids of the prompt are
  // enough.
  void Prime(std::span<const int32_t> ids);

  // The text that became certain with this id; often empty.
  std::string Push(int32_t id);
  // What is still held back; the object then starts anew.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::unique_ptr<DecoderState> state_;
};

}  // namespace vllm::text
