// Mistral's formats of tool calls, by the version that a model was trained on:
//
//   [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcd12345"}, ...]
//   [TOOL_CALLS]f[CALL_ID]abcd12345[ARGS]{"a": 1}[TOOL_CALLS]...    ([CALL_ID] may be missing)
#include <algorithm>
#include <optional>
#include <utility>

#include "vllm/server/marked_calls.h"

namespace vllm::server {
namespace {

constexpr std::string_view kOpen = "[TOOL_CALLS]", kId = "[CALL_ID]", kArguments = "[ARGS]";

// Of a name or an id: clients name their functions as they like.
bool InName(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != '\x7f' &&
         std::string_view("[]{}()<>,\"\\").find(c) == std::string_view::npos;
}

class MistralParser : public MarkedCallParser {
 public:
  ToolOutput Finish() override {
    ToolOutput out;
    if (state_ != State::kText) {
      if (!announced_ && fresh_) Content(raw_, out);
    } else if (!behind_call_) {
      FinishText(out);
    }  // behind a call: the beginning of a mark that was cut off says nothing
    held_.clear();
    raw_.clear();
    return out;
  }

 private:
  // kHead: behind the mark. kWord: a name or an id. kList: between calls of a list.
  enum class State { kText, kHead, kWord, kCall, kList, kListed };

  void Step(char c, ToolOutput& out) override {
    if (state_ == State::kText) return Text(c, out);
    raw_ += c;
    switch (state_) {
      case State::kHead:
        if (IsSpace(c)) return;
        state_ = c == '[' ? State::kList : State::kWord;
        return c == '[' ? void() : Word(c, out);
      case State::kWord:
        return Word(c, out);
      case State::kList:
        if (IsSpace(c) || (c == ',' && !fresh_)) return;
        if (c == ']' && !fresh_) return EndCalls();
        if (c != '{') return Broken(c, out);
        Scan();
        state_ = State::kListed;
        return Call(c, out);
      default:
        return Call(c, out);
    }
  }

  void Text(char c, ToolOutput& out) {
    if (Hold(c, kOpen, out)) Begin();
  }

  void Begin() {
    raw_ = std::exchange(held_, {});
    name_.clear();
    mark_.clear();
    in_id_ = announced_ = false;
    fresh_ = true;
    state_ = State::kHead;
  }

  // Letters, then a mark.
  void Word(char c, ToolOutput& out) {
    if (mark_.empty() && InName(c)) {
      if (!in_id_) name_ += c;
      return;
    }
    mark_ += c;
    if (name_.empty()) return Broken(c, out);
    if (mark_ == kArguments) {
      Scan();
      for (const char d : "{\"name\": \"" + name_ + "\", \"arguments\": ") scanner_->Push(d);
      state_ = State::kCall;
    } else if (mark_ == kId && !in_id_) {
      in_id_ = true;
      mark_.clear();
    } else if (!kArguments.starts_with(mark_) && (in_id_ || !kId.starts_with(mark_))) {
      Broken(c, out);
    }
  }

  void Call(char c, ToolOutput& out) {
    const bool alone = state_ == State::kCall;
    if (alone && !scanner_->arguments_open() && c != '{' && !IsSpace(c)) return Broken(c, out);
    const ToolCallScanner::State s = scanner_->Push(c);
    if (s == ToolCallScanner::State::kBroken) return Broken(c, out);
    Announce(out);
    if (alone ? !scanner_->arguments_whole() : s != ToolCallScanner::State::kDone) return;
    fresh_ = announced_ = cut_ = false;
    raw_.clear();
    if (alone) return EndCalls();
    state_ = State::kList;
  }

  void EndCalls() {
    raw_.clear();
    behind_call_ = true;
    state_ = State::kText;
  }

  // Announced arguments stand as the model wrote them; the rest is text, at whose end another mark
  // may be beginning.
  void Broken(char c, ToolOutput& out) {
    const std::string text = announced_ ? std::string(1, c) : raw_;
    raw_.clear();
    state_ = State::kText;
    size_t end = text.size() - std::min(text.size(), kOpen.size());
    while (end < text.size() && !kOpen.starts_with(std::string_view(text).substr(end))) ++end;
    if (end > 0) Content(text.substr(0, end), out);
    for (const char d : text.substr(end)) Text(d, out);
  }

  void Content(std::string_view text, ToolOutput& out) override {
    behind_call_ = false;
    out.content += text;
  }

  State state_ = State::kText;
  std::string name_, mark_;  // of the call being read; the mark behind the word
  bool in_id_ = false;
  bool fresh_ = false;        // no call was whole since the mark
  bool behind_call_ = false;  // and nothing has been said since
};

}  // namespace

std::unique_ptr<ToolParser> MakeMistralParser() { return std::make_unique<MistralParser>(); }

}  // namespace vllm::server
