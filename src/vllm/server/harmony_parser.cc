// gpt-oss's format of answers, "harmony": messages of channels, each with a header.
//
//   <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>commentary
//   to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//   <|channel|>final<|message|>the answer<|return|>
//
// (github.com/openai/harmony). What stands in the channel of thoughts is reasoning, no content.
#include <algorithm>
#include <array>
#include <utility>

#include "vllm/server/tool_parser.h"

namespace vllm::server {
namespace {

constexpr std::array<std::string_view, 7> kMarks = {"<|start|>", "<|channel|>",   "<|message|>",
                                                    "<|end|>",   "<|constrain|>", "<|call|>",
                                                    "<|return|>"};
constexpr std::string_view kFunctions = "functions.";

std::string_view FirstWord(std::string_view text) { return text.substr(0, text.find(' ')); }

class HarmonyParser : public ToolParser {
 public:
  explicit HarmonyParser(std::vector<std::string> names) : names_(std::move(names)) {}

  ToolOutput Push(std::string_view text) override {
    ToolOutput out;
    held_ += text;
    while (true) {
      const size_t at = held_.find("<|");
      if (at == std::string::npos) {  // the last "<" may begin a mark
        Text(held_.substr(0, held_.size() - (held_.ends_with('<') ? 1 : 0)), out);
        held_.erase(0, held_.size() - (held_.ends_with('<') ? 1 : 0));
        return out;
      }
      Text(held_.substr(0, at), out);
      held_.erase(0, at);
      const auto mark = std::find_if(kMarks.begin(), kMarks.end(), [&](std::string_view m) {
        return held_.starts_with(m) || m.starts_with(held_);
      });
      if (mark == kMarks.end()) {
        Text(held_.substr(0, 2), out);
        held_.erase(0, 2);
      } else if (held_.size() < mark->size()) {
        return out;
      } else {
        held_.erase(0, mark->size());
        Mark(*mark, out);
      }
    }
  }

  ToolOutput Finish() override {
    ToolOutput out;
    Text(std::exchange(held_, {}), out);
    if (!marked_) out.content += std::exchange(header_, {});  // plain text without a header
    return out;
  }

  int calls() const override { return calls_; }
  bool cut() const override { return false; }  // an end token follows a whole call alone

 private:
  enum class In { kHeader, kThoughts, kContent, kCall, kBetween };

  void Text(std::string_view text, ToolOutput& out) {
    if (text.empty()) return;
    if (in_ == In::kHeader) header_ += text;
    if (in_ == In::kThoughts) out.reasoning += text;
    if (in_ == In::kContent) out.content += text;
    if (in_ == In::kCall) out.calls.push_back({calls_ - 1, "", std::string(text)});
  }

  void Mark(std::string_view mark, ToolOutput& out) {
    marked_ = true;
    if (mark == "<|start|>") {
      in_ = In::kHeader;
      header_.clear();
      channel_at_ = 0;
    } else if (mark == "<|channel|>") {
      if (in_ != In::kHeader) header_.clear();
      in_ = In::kHeader;
      header_ += ' ';
      channel_at_ = header_.size();
    } else if (mark == "<|constrain|>") {
      header_ += ' ';
    } else if (mark == "<|message|>") {
      Begin(out);
    } else {
      in_ = In::kBetween;
    }
  }

  // What the message is that the header stands before.
  void Begin(ToolOutput& out) {
    const std::string_view header = header_;
    in_ = FirstWord(header.substr(channel_at_)) == "analysis" ? In::kThoughts : In::kContent;
    const size_t to = header.find("to=");
    if (to == std::string_view::npos) return;
    std::string_view name = FirstWord(header.substr(to + 3));
    if (!name.starts_with(kFunctions)) return;
    name.remove_prefix(kFunctions.size());
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) return;
    in_ = In::kCall;
    out.calls.push_back({calls_++, std::string(name), ""});
  }

  std::vector<std::string> names_;
  In in_ = In::kHeader;
  bool marked_ = false;
  std::string held_;    // may become a mark
  std::string header_;  // role, channel and recipient
  size_t channel_at_ = 0;
  int calls_ = 0;
};

}  // namespace

std::unique_ptr<ToolParser> MakeHarmonyParser(std::vector<std::string> names) {
  return std::make_unique<HarmonyParser>(std::move(names));
}

}  // namespace vllm::server
