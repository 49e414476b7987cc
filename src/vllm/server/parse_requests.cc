#include <chrono>

#include "base/strings.h"
#include "vllm/server/parse_generate.h"
#include "vllm/server/protocol_fields.h"

namespace vllm::server {
namespace json = boost::json;

namespace {

// logprobs and top_logprobs of chat.
void ReadChatLogprobs(Fields& f, engine::SamplingParams* p) {
  bool wanted = false;
  f.Bool("logprobs", &wanted);
  int32_t top = 0;
  f.Int("top_logprobs", &top, 0, engine::kMaxLogprobs);
  if (f.error()) return;
  if (f.Has("top_logprobs") && !wanted) return f.Fail("top_logprobs", "needs logprobs to be true");
  if (wanted) p->logprobs = top;
}

void ReadToolChoice(Fields& f, ChatRequest* r) {
  const bool offered = !r->tool_names.empty();
  const json::value* choice = f.Find("tool_choice");
  if (choice == nullptr) {
    r->call_tools = offered;
    return;
  }
  if (choice->is_object()) {
    return f.Fail("tool_choice",
                  "naming a function is not supported: calls are not constrained yet; use auto");
  }
  if (!choice->is_string()) return f.Fail("tool_choice", "must be none, auto, or an object");
  const std::string_view name(choice->get_string());
  if (name == "required") {
    return f.Fail("tool_choice",
                  "required is not supported: calls are not constrained yet; use auto");
  }
  if (name == "auto") {
    if (!offered) return f.Fail("tool_choice", "auto needs tools");
    r->call_tools = true;
  } else if (name == "none") {
    r->chat.tools = nullptr;
  } else {
    f.Fail("tool_choice", fmt::format("must be none or auto, got '{}'", base::Printable(name)));
  }
}

// A request of `known` fields, read by `read`; the first thing wrong with it is the answer.
template <typename Request, typename Read>
Parsed<Request> ParseAs(std::string_view body, std::span<const Field> known, Read read) {
  Parsed<json::object> o = ParseBody(body);
  if (auto* e = std::get_if<ApiError>(&o)) return *e;
  Fields f(std::get<json::object>(o), known, "");
  Request r;
  if (!f.error()) read(f, r);
  if (f.error()) return *f.error();
  return r;
}

}  // namespace

Parsed<ChatRequest> ParseChat(std::string_view body) {
  return ParseAs<ChatRequest>(body, ChatFields(), [](Fields& f, ChatRequest& r) {
    ReadConversation(f, &r.chat);
    ReadTools(f, &r.chat, &r.tool_names);
    ReadToolChoice(f, &r);
    ReadGenerate(f, &r);
    ReadChatLogprobs(f, &r.sampling);
    if (f.Has("max_completion_tokens")) {
      int64_t tokens = 0;
      f.Int("max_completion_tokens", &tokens, 0);
      if (r.max_tokens && *r.max_tokens != tokens) {
        f.Fail("max_completion_tokens", "and max_tokens differ: give one of them");
      }
      if (!r.max_tokens) r.max_tokens_field = "max_completion_tokens";
      r.max_tokens = tokens;
    }
    if (r.max_tokens && *r.max_tokens == 0) {
      f.Fail(r.max_tokens_field, "must be at least 1");
    }
    r.chat.now = std::chrono::system_clock::now();
  });
}

Parsed<CompletionRequest> ParseCompletion(std::string_view body) {
  return ParseAs<CompletionRequest>(body, CompletionFields(), [](Fields& f, CompletionRequest& r) {
    ReadPrompts(f, "prompt", &r.prompts);
    ReadGenerate(f, &r);
    f.Int("logprobs", &r.sampling.logprobs, 0, engine::kMaxLogprobs);
    f.Bool("echo", &r.echo);
    f.Bool("add_special_tokens", &r.add_special_tokens);
    if (r.prompts.size() * static_cast<size_t>(r.sampling.n) > kMaxChoicesInAll) {
      f.Fail("n", fmt::format("times the number of prompts is over {}", kMaxChoicesInAll));
    }
  });
}

namespace {

void ReadInputs(Fields& f, EmbeddingRequest& r) {
  f.String("model", &r.model, 1024);
  ReadPrompts(f, "input", &r.inputs);
  f.Bool("add_special_tokens", &r.add_special_tokens);
  f.Int("priority", &r.priority);
  for (const Prompt& input : r.inputs) {
    if (input.is_text && input.text.empty()) f.Fail("input", "must not be empty");
  }
}

}  // namespace

Parsed<EmbeddingRequest> ParseClassify(std::string_view body) {
  return ParseAs<EmbeddingRequest>(body, ClassifyFields(), ReadInputs);
}

Parsed<EmbeddingRequest> ParseEmbedding(std::string_view body) {
  return ParseAs<EmbeddingRequest>(body, EmbeddingFields(), [](Fields& f, EmbeddingRequest& r) {
    ReadInputs(f, r);
    std::string format = "float";
    f.String("encoding_format", &format, 64);
    if (format != "float" && format != "base64") {
      f.Fail("encoding_format",
             fmt::format("must be float or base64, got '{}'", base::Printable(format)));
    }
    r.base64 = format == "base64";
  });
}

Parsed<ScoreRequest> ParseScore(std::string_view body) {
  return ParseAs<ScoreRequest>(body, ScoreFields(), [](Fields& f, ScoreRequest& r) {
    f.String("model", &r.model, 1024);
    for (const auto& [name, out] : {std::pair{"text_1", &r.first}, {"text_2", &r.second}}) {
      if (!f.Has(name)) f.Fail(name, "is missing");
      f.Strings(name, out, kMaxPrompts, size_t{16} << 20, true);
      if (out->empty()) f.Fail(name, "must not be empty");
    }
    if (r.first.size() != 1 && r.first.size() != r.second.size()) {
      f.Fail("text_1", fmt::format("has {} texts, text_2 {}: give one for all, or one for each",
                                   r.first.size(), r.second.size()));
    }
    f.Int("priority", &r.priority);
  });
}

Parsed<ScoreRequest> ParseRerank(std::string_view body) {
  return ParseAs<ScoreRequest>(body, RerankFields(), [](Fields& f, ScoreRequest& r) {
    r.rerank = true;
    f.String("model", &r.model, 1024);
    std::string query;
    f.String("query", &query, size_t{16} << 20);
    if (query.empty()) f.Fail("query", f.Has("query") ? "must not be empty" : "is missing");
    r.first.push_back(std::move(query));
    if (!f.Has("documents")) f.Fail("documents", "is missing");
    f.Strings("documents", &r.second, kMaxPrompts, size_t{16} << 20);
    if (r.second.empty()) f.Fail("documents", "must not be empty");
    int64_t top = 0;
    f.Int("top_n", &top, 0);
    r.top_n = static_cast<size_t>(top);
    f.Int("priority", &r.priority);
  });
}

Parsed<TokenizeRequest> ParseTokenize(std::string_view body) {
  return ParseAs<TokenizeRequest>(body, TokenizeFields(), [](Fields& f, TokenizeRequest& r) {
    f.String("model", &r.model, 1024);
    const bool chat = f.Has("messages");
    if (chat == f.Has("prompt")) {
      f.Fail("prompt", chat ? "and messages exclude each other" : "is missing (or messages)");
    } else if (chat) {
      std::vector<std::string> names;
      ReadConversation(f, &r.chat);
      ReadTools(f, &r.chat, &names);
    } else {
      r.prompt.emplace();
      f.String("prompt", &*r.prompt, size_t{64} << 20);
      for (const char* name : {"add_generation_prompt", "continue_final_message",
                               "chat_template_kwargs", "tools", "documents"}) {
        if (f.Has(name)) f.Fail(name, "belongs to messages, not to prompt");
      }
    }
    if (f.Has("add_special_tokens")) {
      bool add = false;
      f.Bool("add_special_tokens", &add);
      if (chat && add)
        f.Fail("add_special_tokens", "is for prompts: the chat template writes them");
      r.add_special_tokens = add;
    }
    f.Bool("return_token_strs", &r.return_token_strs);
    r.chat.now = std::chrono::system_clock::now();
  });
}

Parsed<DetokenizeRequest> ParseDetokenize(std::string_view body) {
  return ParseAs<DetokenizeRequest>(body, DetokenizeFields(), [](Fields& f, DetokenizeRequest& r) {
    f.String("model", &r.model, 1024);
    if (!f.Has("tokens")) f.Fail("tokens", "is missing");
    f.Ids("tokens", &r.tokens, size_t{1} << 24);
    f.Bool("skip_special_tokens", &r.skip_special_tokens);
  });
}

}  // namespace vllm::server
