// Mistral's formats of tool calls, by the version that a model was trained on:
//
//   [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "abcd12345"}, ...]
//   [TOOL_CALLS]f[CALL_ID]abcd12345[ARGS]{"a": 1}[TOOL_CALLS]...    ([CALL_ID] may be missing)
#include <algorithm>
#include <optional>
#include <utility>

#include "vllm/server/tool_call_scanner.h"
#include "vllm/server/tool_parser.h"

namespace vllm::server {
namespace {

constexpr std::string_view kOpen = "[TOOL_CALLS]", kId = "[CALL_ID]", kArguments = "[ARGS]";

// Of a name or an id: clients name their functions as they like.
bool InName(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != '\x7f' &&
         std::string_view("[]{}()<>,\"\\").find(c) == std::string_view::npos;
}

class MistralParser : public ToolParser {
 public:
  ToolOutput Push(std::string_view text) override {
    ToolOutput out;
    for (const char c : text) Step(c, out);
    return out;
  }

  ToolOutput Finish() override {
    ToolOutput out;
    if (state_ != State::kText) {
      if (!announced_ && fresh_) Content(raw_, out);
    } else if (!behind_call_) {
      const bool blank = std::all_of(held_.begin(), held_.end(), IsSpace);
      if (!(blank && calls_ > 0)) Content(held_, out);
    }  // behind a call: the beginning of a mark that was cut off says nothing
    held_.clear();
    raw_.clear();
    return out;
  }

  int calls() const override { return calls_; }
  bool cut() const override { return cut_; }

 private:
  // kHead: behind the mark. kWord: a name or an id. kList: between calls of a list.
  enum class State { kText, kHead, kWord, kCall, kList, kListed };

  void Step(char c, ToolOutput& out) {
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
        Scan({});
        state_ = State::kListed;
        return Call(c, out);
      default:
        return Call(c, out);
    }
  }

  // Holds back white space and what may become a mark.
  void Text(char c, ToolOutput& out) {
    held_ += c;
    const size_t mark = held_.find_first_not_of(" \n\t\r");
    if (mark == std::string::npos) return;
    const std::string_view rest = std::string_view(held_).substr(mark);
    if (rest == kOpen) return Begin();
    if (kOpen.starts_with(rest)) return;
    const std::string text = std::exchange(held_, {});
    Content(text.substr(0, mark + 1), out);
    for (const char d : text.substr(mark + 1)) Text(d, out);
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
      Scan("{\"name\": \"" + name_ + "\", \"arguments\": ");
      state_ = State::kCall;
    } else if (mark_ == kId && !in_id_) {
      in_id_ = true;
      mark_.clear();
    } else if (!kArguments.starts_with(mark_) && (in_id_ || !kId.starts_with(mark_))) {
      Broken(c, out);
    }
  }

  // A new call, of which the scanner has been told so much.
  void Scan(const std::string& so_far) {
    scanner_.emplace();
    for (const char c : so_far) scanner_->Push(c);
    announced_ = false;
    sent_ = 0;
  }

  void Call(char c, ToolOutput& out) {
    const bool alone = state_ == State::kCall;
    if (alone && !scanner_->arguments_open() && c != '{' && !IsSpace(c)) return Broken(c, out);
    const ToolCallScanner::State s = scanner_->Push(c);
    if (s == ToolCallScanner::State::kBroken) return Broken(c, out);
    if (scanner_->has_name() && scanner_->arguments_open()) Announce(out);
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

  void Announce(ToolOutput& out) {
    if (!announced_) {
      announced_ = cut_ = true;
      out.calls.push_back({calls_++, scanner_->name(), ""});
    }
    const std::string_view fresh = std::string_view(scanner_->arguments()).substr(sent_);
    if (fresh.empty()) return;
    sent_ += fresh.size();
    if (out.calls.empty() || out.calls.back().index != calls_ - 1)
      out.calls.push_back({calls_ - 1, "", ""});
    out.calls.back().arguments += fresh;
  }

  void Content(std::string_view text, ToolOutput& out) {
    behind_call_ = false;
    out.content += text;
  }

  State state_ = State::kText;
  std::string held_;         // white space and the beginning of a mark
  std::string raw_;          // what was read since the mark, or since the call before it
  std::string name_, mark_;  // of the call being read; the mark behind the word
  bool in_id_ = false;
  std::optional<ToolCallScanner> scanner_;
  bool announced_ = false;    // the call being read
  bool cut_ = false;          // the last announced call is not whole
  bool fresh_ = false;        // no call was whole since the mark
  bool behind_call_ = false;  // and nothing has been said since
  size_t sent_ = 0;           // bytes of the arguments
  int calls_ = 0;
};

}  // namespace

std::unique_ptr<ToolParser> MakeMistralParser() { return std::make_unique<MistralParser>(); }

}  // namespace vllm::server
