// What parsers of calls behind a mark share: text that may become the mark is held back, and a call
// is given out while its arguments are still being written.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "vllm/server/tool_call_scanner.h"
#include "vllm/server/tool_parser.h"

namespace vllm::server {

class MarkedCallParser : public ToolParser {
 public:
  ToolOutput Push(std::string_view text) final {
    ToolOutput out;
    for (const char c : text) Step(c, out);
    return out;
  }
  int calls() const final { return calls_; }
  bool cut() const final { return cut_; }

 protected:
  virtual void Step(char c, ToolOutput& out) = 0;
  virtual void Content(std::string_view text, ToolOutput& out) = 0;

  // A character of text: white space and the beginning of `mark` are held. True: all of it is.
  bool Hold(char c, std::string_view mark, ToolOutput& out) {
    held_ += c;
    const size_t begin = held_.find_first_not_of(" \n\t\r");
    if (begin == std::string::npos) return false;
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (mark.starts_with(rest)) return rest == mark;
    // White space, then a mark that did not come; a new one may begin in it.
    const std::string text = std::exchange(held_, {});
    Content(text.substr(0, begin + 1), out);
    for (const char d : text.substr(begin + 1)) Step(d, out);
    return false;
  }
  // What is held when the text ends. White space is the text's own where there was no call.
  void FinishText(ToolOutput& out) {
    const bool blank = std::all_of(held_.begin(), held_.end(), IsSpace);
    if (!(blank && calls_ > 0)) Content(held_, out);
  }

  // A new call.
  void Scan() {
    scanner_.emplace();
    announced_ = false;
    sent_ = 0;
  }
  // What is known of the call and has not been given out.
  void Announce(ToolOutput& out) {
    if (!scanner_->has_name() || !scanner_->arguments_open()) return;
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

  std::string held_;  // white space and the beginning of a mark
  std::string raw_;   // what was read of a call, as long as it may be none
  std::optional<ToolCallScanner> scanner_;
  bool announced_ = false;  // the call being read
  bool cut_ = false;        // the last announced call is not whole
  int calls_ = 0;

 private:
  size_t sent_ = 0;  // bytes of the arguments
};

}  // namespace vllm::server
