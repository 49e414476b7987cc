// Answers in OpenAI's schemas: whole ones, and the chunks of streamed ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vllm/engine/request.h"
#include "vllm/server/choice_text.h"

namespace vllm::server {

struct Usage {
  int64_t prompt = 0, completion = 0, cached = 0;  // tokens
};
void AppendUsage(const Usage& usage, std::string& out);

// What all of an answer's chunks and choices share.
struct AnswerHead {
  bool chat = true;
  std::string id, model, fingerprint;
  int64_t created = 0;
  bool logprobs = false;       // the field has values
  bool token_ids = false;      // return_token_ids
  bool include_usage = false;  // of streams: the last chunk has it, the others null
  bool continuous_usage = false;
};

// A prompt token with its log-probability, of echo and prompt_logprobs. The first one has none.
struct PromptEntry {
  engine::TextLogprob logprob;
  int64_t offset = 0;  // characters of the echoed text
  int32_t rank = 0;    // 0: no log-probability
};

// A finished choice.
struct WholeChoice {
  std::string content;
  std::string reasoning;
  std::vector<ToolDelta> calls;  // one entry a call, with all of its arguments
  std::vector<std::string> call_ids;
  std::vector<PromptEntry> echoed;
  std::vector<Entry> entries;
  std::vector<int32_t> token_ids;
  std::string finish_reason;         // "stop", "length", "tool_calls", "abort"
  std::string stop_reason = "null";  // JSON: a stop string, a token id or null
  // Adds what a delta brings.
  void Take(Delta delta);
};

struct WholePrompt {
  std::vector<int32_t> ids;           // of return_token_ids
  std::vector<PromptEntry> logprobs;  // of prompt_logprobs; empty: null
};

// `prompts[i]` belongs to choices[i * n .. ].
std::string WholeAnswer(const AnswerHead& head, const std::vector<WholeChoice>& choices,
                        const std::vector<WholePrompt>& prompts, size_t n, const Usage& usage);

// Frames of server-sent events for one choice; what is the same in each is made once.
class ChunkWriter {
 public:
  ChunkWriter(const AnswerHead& head, int index);

  // Each appends one "data: {...}\n\n". Role: chat's first chunk, which completions have not.
  void Role(const Usage& usage, std::string& out) const;
  // `call_ids[index]` names each call. `ids`: the tokens of this delta, of return_token_ids.
  void Chunk(const Delta& delta, const std::vector<std::string>& call_ids,
             const std::vector<int32_t>& ids, const Usage& usage, std::string& out) const;
  // The echoed prompt of a completion.
  void Echo(std::string_view text, const std::vector<PromptEntry>& entries, const Usage& usage,
            std::string& out) const;
  void Finish(std::string_view reason, std::string_view stop_reason, const Usage& usage,
              std::string& out) const;

 private:
  void End(std::string_view finish, std::string_view stop_reason, const Usage& usage,
           std::string& out) const;

  bool chat_, logprobs_, token_ids_, include_usage_, continuous_usage_;
  std::string prefix_;  // up to the choice's delta or text
};

// The chunk without choices that ends a stream with usage, framed.
void UsageChunk(const AnswerHead& head, const Usage& usage, std::string& out);
// An error in the middle of a stream, framed.
void ErrorChunk(std::string_view error_body, std::string& out);

}  // namespace vllm::server
