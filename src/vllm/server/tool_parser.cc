#include "vllm/server/tool_parser.h"

#include <algorithm>
#include <optional>

#include "vllm/server/marked_calls.h"

namespace vllm::server {
namespace {

constexpr std::string_view kHermesOpen = "<tool_call>", kHermesClose = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";

// Hermes and Llama 3, character by character: text, a mark that may be beginning, a call, what
// follows a call. They differ in the marks and in what makes a call.
class Parser : public MarkedCallParser {
 public:
  Parser(ToolFormat format, std::vector<std::string> names)
      : hermes_(format == ToolFormat::kHermes), names_(std::move(names)) {
    open_ = hermes_ ? kHermesOpen : kPythonTag;
  }

  ToolOutput Finish() override {
    ToolOutput out;
    if (state_ == State::kCall && !announced_) {
      Content(raw_, out);
    } else if (state_ == State::kText) {
      FinishText(out);
    }  // behind a call: the beginning of a mark that was cut off says nothing
    held_.clear();
    raw_.clear();
    return out;
  }

 private:
  enum class State { kText, kCall, kAfter };

  void Step(char c, ToolOutput& out) override {
    switch (state_) {
      case State::kText:
        return Text(c, out);
      case State::kCall:
        return Call(c, out);
      case State::kAfter:
        return After(c, out);
    }
  }

  void Text(char c, ToolOutput& out) {
    if (!hermes_ && !wrote_ && c == '{' && std::all_of(held_.begin(), held_.end(), IsSpace)) {
      Begin(held_);
      return Call(c, out);
    }
    if (Hold(c, open_, out)) Begin(held_);
  }

  void Begin(std::string so_far) {
    raw_ = std::move(so_far);
    held_.clear();
    Scan();
    state_ = State::kCall;
  }

  void Call(char c, ToolOutput& out) {
    raw_ += c;
    const ToolCallScanner::State s = scanner_->Push(c);
    if (s == ToolCallScanner::State::kBroken) {
      // Announced arguments stand as the model wrote them; the rest is text.
      const std::string text = announced_ ? std::string(1, c) : std::move(raw_);
      raw_.clear();
      state_ = State::kText;
      return Content(text, out);
    }
    const bool wanted = hermes_ || !scanner_->has_name() ||
                        std::find(names_.begin(), names_.end(), scanner_->name()) != names_.end();
    if (!wanted) {
      const std::string text = std::move(raw_);
      raw_.clear();
      state_ = State::kText;
      return Content(text, out);
    }
    Announce(out);
    if (s == ToolCallScanner::State::kDone) {
      state_ = State::kAfter;
      cut_ = false;
      raw_.clear();
    }
  }

  // The closing mark, or the next call's beginning.
  void After(char c, ToolOutput& out) {
    if (hermes_) {
      held_ += c;
      const size_t mark = held_.find_first_not_of(" \n\t\r");
      if (mark == std::string::npos) return;
      const std::string_view rest = std::string_view(held_).substr(mark);
      if (kHermesClose.substr(0, rest.size()) == rest) {
        if (rest.size() < kHermesClose.size()) return;
        held_.clear();
        state_ = State::kText;
        return;
      }
    } else {
      if (c == '{') {
        Begin(held_);
        return Call(c, out);
      }
      held_ += c;
      if (IsSpace(c) || c == ';' || c == ',') return;
    }
    const std::string text = std::move(held_);
    held_.clear();
    state_ = State::kText;
    if (!hermes_) wrote_ = true;
    for (const char d : text) Text(d, out);
  }

  void Content(std::string_view text, ToolOutput& out) override {
    if (text.empty()) return;
    wrote_ = true;
    out.content += text;
  }

  bool hermes_;
  std::vector<std::string> names_;
  std::string_view open_;
  State state_ = State::kText;
  bool wrote_ = false;  // content was given out
};

}  // namespace

std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, std::vector<std::string> names) {
  if (format == ToolFormat::kHarmony) return MakeHarmonyParser(std::move(names));
  if (format == ToolFormat::kMistral) return MakeMistralParser();
  return std::make_unique<Parser>(format, std::move(names));
}

std::optional<ToolFormat> ToolFormatNamed(std::string_view name) {
  if (name == "hermes") return ToolFormat::kHermes;
  if (name == "llama3_json") return ToolFormat::kLlama3Json;
  if (name == "mistral") return ToolFormat::kMistral;
  if (name == "openai") return ToolFormat::kHarmony;
  return std::nullopt;
}

std::optional<ToolFormat> ToolFormatOf(std::string_view chat_template) {
  const auto has = [&](std::string_view s) {
    return chat_template.find(s) != std::string_view::npos;
  };
  if (has("<|channel|>") && has("<|message|>")) return ToolFormat::kHarmony;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has(kHermesOpen) && has("arguments")) return ToolFormat::kHermes;
  if (has("<|start_header_id|>") && has("\"parameters\"") && has("tools")) {
    return ToolFormat::kLlama3Json;
  }
  return std::nullopt;
}

bool NeedsSpecialTokens(ToolFormat format) { return format != ToolFormat::kHermes; }

}  // namespace vllm::server
