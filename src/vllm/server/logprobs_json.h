// Log-probabilities in the schemas of chat, of completions, and of vLLM's prompt_logprobs. Private
// to this room.
#pragma once

#include <string>
#include <vector>

#include "vllm/server/answer_json.h"

namespace vllm::server {

void AppendChatLogprobs(const std::vector<Entry>& entries, std::string& out);
void AppendCompletionLogprobs(const std::vector<PromptEntry>& echoed,
                              const std::vector<Entry>& entries, std::string& out);
// null for none, else [null, {"<id>": {"logprob", "rank", "decoded_token"}}, ...].
void AppendPromptLogprobs(const std::vector<PromptEntry>& entries, std::string& out);

}  // namespace vllm::server
