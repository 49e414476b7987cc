#include "vllm/server/answer_json.h"

#include <algorithm>

#include "vllm/server/json_text.h"
#include "vllm/server/logprobs_json.h"

namespace vllm::server {
namespace {

void AppendHead(const AnswerHead& head, std::string_view object, std::string& out) {
  out += R"({"id":)";
  AppendJsonString(head.id, out);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  AppendInt(head.created, out);
  out += R"(,"model":)";
  AppendJsonString(head.model, out);
  out += R"(,"system_fingerprint":)";
  AppendJsonString(head.fingerprint, out);
}

std::string_view ChunkObject(const AnswerHead& head) {
  return head.chat ? "chat.completion.chunk" : "text_completion";
}

void AppendIds(const std::vector<int32_t>& ids, std::string& out) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    AppendInt(ids[i], out);
  }
  out += ']';
}

void AppendCall(const ToolDelta& call, std::string_view id, bool streamed, std::string& out) {
  out += '{';
  if (streamed) {
    out += R"("index":)";
    AppendInt(call.index, out);
    out += ',';
  }
  if (!call.name.empty()) {
    out += R"("id":)";
    AppendJsonString(id, out);
    out += R"(,"type":"function",)";
  }
  out += R"("function":{)";
  if (!call.name.empty()) {
    out += R"("name":)";
    AppendJsonString(call.name, out);
    out += ',';
  }
  out += R"("arguments":)";
  AppendJsonString(call.arguments, out);
  out += "}}";
}

void AppendMessage(const WholeChoice& c, std::string& out) {
  out += R"("message":{"role":"assistant","content":)";
  if (c.content.empty() && !c.calls.empty()) {
    out += "null";
  } else {
    AppendJsonString(c.content, out);
  }
  if (!c.reasoning.empty()) {
    out += R"(,"reasoning_content":)";
    AppendJsonString(c.reasoning, out);
  }
  out += R"(,"refusal":null)";
  if (!c.calls.empty()) {
    out += R"(,"tool_calls":[)";
    for (size_t i = 0; i < c.calls.size(); ++i) {
      if (i > 0) out += ',';
      AppendCall(c.calls[i], i < c.call_ids.size() ? c.call_ids[i] : "", false, out);
    }
    out += ']';
  }
  out += '}';
}

}  // namespace

void WholeChoice::Take(Delta delta) {
  content += delta.content;
  reasoning += delta.reasoning;
  for (ToolDelta& call : delta.calls) {
    if (static_cast<size_t>(call.index) < calls.size()) {
      calls[static_cast<size_t>(call.index)].arguments += call.arguments;
    } else {
      calls.push_back(std::move(call));
    }
  }
  std::move(delta.entries.begin(), delta.entries.end(), std::back_inserter(entries));
}

void AppendUsage(const Usage& usage, std::string& out) {
  out += R"({"prompt_tokens":)";
  AppendInt(usage.prompt, out);
  out += R"(,"completion_tokens":)";
  AppendInt(usage.completion, out);
  out += R"(,"total_tokens":)";
  AppendInt(usage.prompt + usage.completion, out);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  AppendInt(usage.cached, out);
  out += "}}";
}

std::string WholeAnswer(const AnswerHead& head, const std::vector<WholeChoice>& choices,
                        const std::vector<WholePrompt>& prompts, size_t n, const Usage& usage) {
  std::string out;
  AppendHead(head, head.chat ? "chat.completion" : "text_completion", out);
  out += R"(,"choices":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& c = choices[i];
    const WholePrompt& prompt = prompts[i / n];
    if (i > 0) out += ',';
    out += R"({"index":)";
    AppendInt(static_cast<int64_t>(i), out);
    out += ',';
    if (head.chat) {
      AppendMessage(c, out);
    } else {
      out += R"("text":)";
      AppendJsonString(c.content, out);
    }
    out += R"(,"logprobs":)";
    if (!head.logprobs) {
      out += "null";
    } else if (head.chat) {
      AppendChatLogprobs(c.entries, out);
    } else {
      AppendCompletionLogprobs(c.echoed, c.entries, out);
    }
    out += R"(,"finish_reason":)";
    AppendJsonString(c.finish_reason, out);
    out += R"(,"stop_reason":)";
    out += c.stop_reason;
    if (head.token_ids) {
      out += R"(,"token_ids":)";
      AppendIds(c.token_ids, out);
      if (!head.chat) {
        out += R"(,"prompt_token_ids":)";
        AppendIds(prompt.ids, out);
      }
    }
    if (!head.chat) {
      out += R"(,"prompt_logprobs":)";
      AppendPromptLogprobs(prompt.logprobs, out);
    }
    out += '}';
  }
  out += R"(],"usage":)";
  AppendUsage(usage, out);
  if (head.chat) {
    out += R"(,"prompt_logprobs":)";
    AppendPromptLogprobs(prompts.front().logprobs, out);
    if (head.token_ids) {
      out += R"(,"prompt_token_ids":)";
      AppendIds(prompts.front().ids, out);
    }
  }
  out += '}';
  return out;
}

ChunkWriter::ChunkWriter(const AnswerHead& head, int index)
    : chat_(head.chat),
      logprobs_(head.logprobs),
      token_ids_(head.token_ids),
      include_usage_(head.include_usage),
      continuous_usage_(head.continuous_usage),
      prefix_("data: ") {
  AppendHead(head, ChunkObject(head), prefix_);
  prefix_ += R"(,"choices":[{"index":)";
  AppendInt(index, prefix_);
  prefix_ += chat_ ? R"(,"delta":{)" : R"(,"text":)";
}

void ChunkWriter::End(std::string_view finish, std::string_view stop_reason, const Usage& usage,
                      std::string& out) const {
  out += R"(,"finish_reason":)";
  if (finish.empty()) {
    out += "null}]";
  } else {
    AppendJsonString(finish, out);
    out += R"(,"stop_reason":)";
    out += stop_reason;
    out += "}]";
  }
  if (include_usage_) {
    out += R"(,"usage":)";
    continuous_usage_ ? AppendUsage(usage, out) : void(out += "null");
  }
  out += "}\n\n";
}

void ChunkWriter::Role(const Usage& usage, std::string& out) const {
  if (!chat_) return;
  out += prefix_;
  out += R"("role":"assistant","content":""},"logprobs":null)";
  End("", "", usage, out);
}

void ChunkWriter::Chunk(const Delta& delta, const std::vector<std::string>& call_ids,
                        const std::vector<int32_t>& ids, const Usage& usage,
                        std::string& out) const {
  out += prefix_;
  if (chat_) {
    const bool thinks = !delta.reasoning.empty();
    const bool content = !delta.content.empty() || (delta.calls.empty() && !thinks);
    if (thinks) {
      out += R"("reasoning_content":)";
      AppendJsonString(delta.reasoning, out);
      if (content || !delta.calls.empty()) out += ',';
    }
    if (content) {
      out += R"("content":)";
      AppendJsonString(delta.content, out);
    }
    if (!delta.calls.empty()) {
      if (content) out += ',';
      out += R"("tool_calls":[)";
      for (size_t i = 0; i < delta.calls.size(); ++i) {
        if (i > 0) out += ',';
        const auto index = static_cast<size_t>(delta.calls[i].index);
        AppendCall(delta.calls[i], index < call_ids.size() ? call_ids[index] : "", true, out);
      }
      out += ']';
    }
    out += '}';
  } else {
    AppendJsonString(delta.content, out);
  }
  out += R"(,"logprobs":)";
  if (!logprobs_) {
    out += "null";
  } else if (chat_) {
    AppendChatLogprobs(delta.entries, out);
  } else {
    AppendCompletionLogprobs({}, delta.entries, out);
  }
  if (token_ids_) {
    out += R"(,"token_ids":)";
    AppendIds(ids, out);
  }
  End("", "", usage, out);
}

void ChunkWriter::Echo(std::string_view text, const std::vector<PromptEntry>& entries,
                       const Usage& usage, std::string& out) const {
  out += prefix_;
  AppendJsonString(text, out);
  out += R"(,"logprobs":)";
  logprobs_ ? AppendCompletionLogprobs(entries, {}, out) : void(out += "null");
  End("", "", usage, out);
}

void ChunkWriter::Finish(std::string_view reason, std::string_view stop_reason, const Usage& usage,
                         std::string& out) const {
  out += prefix_;
  out += chat_ ? R"(},"logprobs":null)" : R"("","logprobs":null)";
  End(reason, stop_reason, usage, out);
}

void UsageChunk(const AnswerHead& head, const Usage& usage, std::string& out) {
  out += "data: ";
  AppendHead(head, ChunkObject(head), out);
  out += R"(,"choices":[],"usage":)";
  AppendUsage(usage, out);
  out += "}\n\n";
}

void ErrorChunk(std::string_view error_body, std::string& out) {
  out += "data: ";
  out += error_body;
  out += "\n\n";
}

}  // namespace vllm::server
