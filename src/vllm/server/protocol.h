// The requests of the OpenAI API (and vLLM's further fields) as plain structs, and their parsers.
//
// Pure: no engine, no tokenizer. Every field of the schemas stands in one table a route (see
// protocol_fields.h): read, accepted without effect, or refused by name with a reason; any other
// field is a 400. Ranges of sampling are engine::Validate's.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "vllm/engine/sampling_params.h"
#include "vllm/server/api_error.h"
#include "vllm/text/chat_template.h"

namespace vllm::server {

inline constexpr size_t kMaxStops = 64;           // stop strings of a request ...
inline constexpr size_t kMaxStopBytes = 1024;     // ... each at most so long
inline constexpr size_t kMaxPrompts = 2048;       // prompts or inputs of a request
inline constexpr size_t kMaxChoicesInAll = 4096;  // prompts times n

template <typename T>
using Parsed = std::variant<T, ApiError>;

// What chat and plain completions share.
struct GenerateFields {
  std::string model;  // empty: the served one
  std::string request_id;
  engine::SamplingParams sampling;    // max_tokens, bad_words and dry_breakers are not settled yet
  std::optional<int64_t> max_tokens;  // none: 16 for completions, what fits for chat
  std::string_view max_tokens_field = "max_tokens";  // the name that the request used
  std::vector<std::string> bad_words;
  std::optional<std::vector<std::string>> dry_breakers;  // none: llama.cpp's
  bool stream = false;
  bool include_usage = false, continuous_usage = false;
  bool return_token_ids = false;
  int32_t priority = 0;
  std::string cache_salt;
};

struct ChatRequest : GenerateFields {
  text::ChatInput chat;     // tools: null when they are not to be shown
  bool call_tools = false;  // tools are offered: calls are looked for in the answer
  std::vector<std::string> tool_names;
};

struct Prompt {
  std::string text = {};
  std::vector<int32_t> ids = {};
  bool is_text = true;
};

struct CompletionRequest : GenerateFields {
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;
};

// Of /v1/embeddings, and of /v1/classify.
struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;
  bool add_special_tokens = true;
  int32_t priority = 0;
};

// Of /v1/score: pairs of texts. Of /v1/rerank: a query (all firsts are it) with documents.
struct ScoreRequest {
  std::string model;
  std::vector<std::string> first, second;  // one of first for all, or one for each
  bool rerank = false;
  size_t top_n = 0;  // of rerank: so many of the best; 0: all
  int32_t priority = 0;
};

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;  // else the conversation
  text::ChatInput chat;
  std::optional<bool> add_special_tokens;  // of a prompt; none: true
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
  bool skip_special_tokens = false;
};

// `body` is the request's body as it came.
Parsed<ChatRequest> ParseChat(std::string_view body);
Parsed<CompletionRequest> ParseCompletion(std::string_view body);
Parsed<EmbeddingRequest> ParseEmbedding(std::string_view body);
Parsed<EmbeddingRequest> ParseClassify(std::string_view body);
Parsed<ScoreRequest> ParseScore(std::string_view body);
Parsed<ScoreRequest> ParseRerank(std::string_view body);
Parsed<TokenizeRequest> ParseTokenize(std::string_view body);
Parsed<DetokenizeRequest> ParseDetokenize(std::string_view body);

}  // namespace vllm::server
