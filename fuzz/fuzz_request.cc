// The first byte chooses a route, the rest is a request's body: whatever it is, it is taken or
// refused with a 4xx that has a sentence; what is taken has passed the checks of its ranges.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vllm/engine/sampling_params.h"
#include "vllm/server/protocol.h"

namespace {

template <typename T>
void Check(const vllm::server::Parsed<T>& parsed) {
  const auto* error = std::get_if<vllm::server::ApiError>(&parsed);
  if (error == nullptr) return;
  if (error->status < 400 || error->status > 499 || error->message.empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 7) {
    case 0: {
      const auto parsed = vllm::server::ParseChat(body);
      Check(parsed);
      if (const auto* chat = std::get_if<vllm::server::ChatRequest>(&parsed)) {
        (void)vllm::engine::Validate(chat->sampling, 1000);
      }
      break;
    }
    case 1: {
      const auto parsed = vllm::server::ParseCompletion(body);
      Check(parsed);
      if (const auto* completion = std::get_if<vllm::server::CompletionRequest>(&parsed)) {
        if (completion->prompts.empty()) std::abort();
        (void)vllm::engine::Validate(completion->sampling, 1000);
      }
      break;
    }
    case 2:
      Check(vllm::server::ParseEmbedding(body));
      break;
    case 3:
      Check(vllm::server::ParseTokenize(body));
      break;
    case 4:
      Check(vllm::server::ParseDetokenize(body));
      break;
    case 5:
      Check(vllm::server::ParseScore(body));
      break;
    default:
      Check(vllm::server::ParseRerank(body));
      break;
  }
  return 0;
}
