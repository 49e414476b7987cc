// A Hugging Face folder's tokenizer and chat template as GGUF metadata.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "vllm/weights/config.h"
#include "vllm/weights/gguf_writer.h"

namespace apps {

// Adds tokenizer.* to `keys`: `vocab_size` tokens, of which those that the tokenizer lacks are
// named as padding. What GGUF can only name (how text is cut into words) is found by trying: the
// name under which a probe of awkward texts gives the same ids. Errors: kUnsupported where no name
// does, or the kind of tokenizer isn't one of byte-level and SentencePiece-like BPE.
base::Status VocabToGguf(const std::string& folder, const vllm::weights::Config& config,
                         int64_t vocab_size, vllm::weights::GgufKeys& keys);

}  // namespace apps
