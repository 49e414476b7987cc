#include "vllm/server/generate_session.h"

#include <algorithm>
#include <random>

#include "base/strings.h"
#include "vllm/server/json_text.h"

namespace vllm::server {
namespace {

using engine::FinishReason;

constexpr size_t kTail = 16;  // prompt tokens that the first generated ones may lean on

std::mt19937_64& Random() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return random;
}

}  // namespace

std::string NewCallId(std::optional<ToolFormat> format) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::uniform_int_distribution<size_t> pick(0, kLetters.size() - 1);
  // Mistral's templates take ids of nine letters alone when they come back.
  const bool nine = format == ToolFormat::kMistral;
  std::string id = nine ? "" : "call_";
  for (int i = 0; i < (nine ? 9 : 24); ++i) id += kLetters[pick(Random())];
  return id;
}

std::string NewId(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, Random()(), Random()());
}

std::string ListBegin(std::string_view prefix, std::string_view model) {
  std::string out = R"({"id":")" + NewId(prefix) + R"(","object":"list","created":)";
  AppendInt(std::chrono::duration_cast<std::chrono::seconds>(
                std::chrono::system_clock::now().time_since_epoch())
                .count(),
            out);
  out += R"(,"model":)";
  AppendJsonString(model, out);
  out += R"(,"data":[)";
  return out;
}

std::vector<PromptEntry> PromptEntries(const text::Tokenizer& tokenizer,
                                       const std::vector<int32_t>& ids,
                                       const std::vector<engine::TokenLogprobs>& scored,
                                       std::string_view text) {
  std::vector<PromptEntry> entries;
  entries.reserve(ids.size());
  size_t byte = 0;
  int64_t character = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    PromptEntry e;
    engine::TokenLogprobs l;
    if (i > 0 && i <= scored.size()) {
      l = scored[i - 1];
      e.rank = std::max(1, l.rank);
    }
    l.token = ids[i];
    e.logprob = engine::Describe(tokenizer, l);
    std::string& bytes = e.logprob.bytes;
    // The tokenizer may have put a space in front of the text, which isn't the text's.
    if (byte == 0 && bytes.size() > 1 && bytes[0] == ' ' && !text.empty() && text[0] != ' ') {
      bytes.erase(0, 1);
      e.logprob.token.erase(0, 1);
    }
    const bool inside = !bytes.empty() && (static_cast<unsigned char>(bytes[0]) & 0xC0) == 0x80;
    e.offset = character - (inside && character > 0 ? 1 : 0);
    // Tokens that the text doesn't show (a BOS token) take no place in it.
    if (text.substr(std::min(byte, text.size()), bytes.size()) == bytes) {
      byte += bytes.size();
      character += CountCharacters(bytes);
    }
    entries.push_back(std::move(e));
  }
  return entries;
}

GenerateSession::GenerateSession(std::shared_ptr<Reply> reply, GenerateOptions options,
                                 std::vector<GeneratePrompt> prompts)
    : Session(std::move(reply)),
      options_(std::move(options)),
      prompts_(std::move(prompts)),
      whole_prompts_(prompts_.size()),
      entries_(prompts_.size()),
      cached_(prompts_.size(), 0),
      choices_(prompts_.size() * Choices()),
      open_(choices_.size()) {
  const bool keep = options_.echo || options_.sampling.prompt_logprobs >= 0;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    std::vector<int32_t>& ids = prompts_[p].ids;
    usage_.prompt += static_cast<int64_t>(ids.size());
    const std::span<const int32_t> tail = std::span(ids).last(std::min(ids.size(), kTail));
    for (size_t i = p * Choices(); i < (p + 1) * Choices(); ++i) {
      Choice& c = choices_[i];
      std::unique_ptr<ToolParser> tools;
      if (options_.tools) tools = MakeToolParser(*options_.tools, options_.tool_names);
      c.text = std::make_unique<ChoiceText>(options_.tokenizer, options_.sampling, tail,
                                            std::move(tools), CountCharacters(prompts_[p].echo));
      if (options_.stream) c.writer.emplace(options_.head, static_cast<int>(i));
    }
    if (options_.head.token_ids) whole_prompts_[p].ids = ids;
    if (!keep) ids = {};
  }
}

void GenerateSession::Begin() {
  if (options_.stream) reply().StartEvents();
}

bool GenerateSession::Take(size_t part, engine::Output& output) {
  if (ended || part >= prompts_.size() || output.choice < 0 ||
      static_cast<size_t>(output.choice) >= Choices()) {
    return false;
  }
  Choice& c = choices_[part * Choices() + static_cast<size_t>(output.choice)];
  if (c.finished) return false;
  if (output.finish == FinishReason::kError) {
    Fail(output.extra != nullptr ? output.extra->error : "");
    return false;
  }
  TakePrompt(part, output);
  Delta delta;
  if (output.token >= 0 && !options_.no_output) {
    ++usage_.completion;
    const bool logprobs =
        output.extra != nullptr && output.extra->logprobs.token >= 0 && options_.head.logprobs;
    delta = c.text->Push(output.token, output.finish == FinishReason::kStop,
                         logprobs ? &output.extra->logprobs : nullptr);
    if (options_.head.token_ids) {
      if (options_.stream) c.fresh_ids.push_back(output.token);
      c.whole.token_ids.push_back(output.token);
    }
  }
  const bool over = output.finish != FinishReason::kNone || delta.stopped;
  if (over && !delta.stopped) {
    Delta rest = c.text->Finish();
    delta.content += rest.content;
    delta.reasoning += rest.reasoning;
    std::move(rest.calls.begin(), rest.calls.end(), std::back_inserter(delta.calls));
    std::move(rest.entries.begin(), rest.entries.end(), std::back_inserter(delta.entries));
  }
  if (over) Finish(c, output, delta);
  Emit(part, c, std::move(delta));
  return over && output.finish == FinishReason::kNone;
}

// What comes once for a prompt.
void GenerateSession::TakePrompt(size_t part, engine::Output& output) {
  if (output.cached_tokens > cached_[part]) {
    usage_.cached += output.cached_tokens - cached_[part];
    cached_[part] = output.cached_tokens;
  }
  const bool keep = options_.echo || options_.sampling.prompt_logprobs >= 0;
  if (!keep || !entries_[part].empty() || options_.tokenizer == nullptr) return;
  if (options_.sampling.prompt_logprobs < 0) return;
  const std::vector<engine::TokenLogprobs> none;
  const auto& scored = output.extra != nullptr ? output.extra->prompt_logprobs : none;
  if (scored.empty() && prompts_[part].ids.size() > 1) return;
  entries_[part] =
      PromptEntries(*options_.tokenizer, prompts_[part].ids, scored, prompts_[part].echo);
}

void GenerateSession::Finish(Choice& c, const engine::Output& output, const Delta& delta) {
  c.finished = true;
  --open_;
  std::string& reason = c.whole.finish_reason;
  if (delta.stopped) {
    reason = "stop";
    c.whole.stop_reason.clear();
    AppendJsonString(delta.stop, c.whole.stop_reason);
  } else if (output.finish == FinishReason::kStop) {
    reason = "stop";
    const std::vector<int32_t>& stops = options_.sampling.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), output.token) != stops.end()) {
      c.whole.stop_reason = std::to_string(output.token);
    }
  } else {
    reason = output.finish == FinishReason::kLength ? "length" : "abort";
  }
  if (options_.no_output) {
    reason = "length";
    c.whole.stop_reason = "null";
  }
  // Of a call that a stop string cut nobody should run anything.
  if (reason == "stop" && c.text->tool_calls() > 0 && !c.text->call_cut()) reason = "tool_calls";
}

void GenerateSession::Emit(size_t part, Choice& c, Delta delta) {
  while (c.whole.call_ids.size() < static_cast<size_t>(c.text->tool_calls())) {
    c.whole.call_ids.push_back(NewCallId(options_.tools));
  }
  if (!options_.stream) {
    c.whole.Take(std::move(delta));
    return;
  }
  if (!c.begun) {
    c.begun = true;
    c.writer->Role(usage_, frames_);
    if (options_.echo) c.writer->Echo(prompts_[part].echo, entries_[part], usage_, frames_);
  }
  if (!delta.empty() || !c.fresh_ids.empty()) {
    c.writer->Chunk(delta, c.whole.call_ids, c.fresh_ids, usage_, frames_);
    c.fresh_ids.clear();
  }
  if (c.finished) c.writer->Finish(c.whole.finish_reason, c.whole.stop_reason, usage_, frames_);
}

void GenerateSession::Flush() {
  if (ended) return;
  if (!options_.stream) {
    if (open_ > 0) return;
    ended = true;
    std::vector<WholeChoice> choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      WholeChoice& c = choices_[i].whole;
      const size_t part = i / Choices();
      if (options_.echo) {
        c.content = prompts_[part].echo + c.content;
        if (options_.head.logprobs) c.echoed = entries_[part];
      }
      choices.push_back(std::move(c));
    }
    for (size_t p = 0; p < prompts_.size(); ++p) {
      if (options_.show_prompt_logprobs) whole_prompts_[p].logprobs = entries_[p];
    }
    reply().Json(WholeAnswer(options_.head, choices, whole_prompts_, Choices(), usage_));
    return;
  }
  const bool last = open_ == 0;
  if (last) {
    if (options_.head.include_usage) UsageChunk(options_.head, usage_, frames_);
    frames_ += "data: [DONE]\n\n";
  }
  if (!frames_.empty()) {
    reply().exchange().Frames(std::move(frames_));
    frames_.clear();
  }
  if (last) {
    ended = true;
    reply().EndEvents();
  }
}

void GenerateSession::Fail(const std::string& message) {
  if (!options_.stream) return FailWith(message);
  ended = true;
  ApiError error;
  error.status = 500;
  error.message = message.empty() ? "the engine failed" : message;
  ErrorChunk(ErrorBody(error), frames_);
  frames_ += "data: [DONE]\n\n";
  reply().exchange().Frames(std::move(frames_));
  frames_.clear();
  reply().EndEvents();
}

}  // namespace vllm::server
