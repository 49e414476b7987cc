// Any text as a model's answer with tool calls, cut in two ways: what comes out must be the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "vllm/server/tool_parser.h"

namespace {

// Everything that came out, in one text.
std::string Parse(vllm::server::ToolFormat format, std::string_view text, size_t piece) {
  const auto parser = vllm::server::MakeToolParser(format, {"f", "g"});
  std::string content, names;
  std::string arguments[64];
  const auto take = [&](const vllm::server::ToolOutput& out) {
    content += out.content;
    for (const vllm::server::ToolDelta& call : out.calls) {
      if (!call.name.empty()) names += std::to_string(call.index) + call.name + ";";
      arguments[call.index % 64] += call.arguments;
    }
  };
  for (; text.size() > piece; text.remove_prefix(piece)) take(parser->Push(text.substr(0, piece)));
  take(parser->Push(text));
  take(parser->Finish());
  std::string all = content + "\n" + names;
  for (const std::string& a : arguments) all += "\n" + a;
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  using Format = vllm::server::ToolFormat;
  for (const auto format : {Format::kHermes, Format::kLlama3Json, Format::kMistral}) {
    const std::string whole = Parse(format, text, size + 1);
    if (Parse(format, text, 1) != whole || Parse(format, text, 7) != whole) std::abort();
  }
  return 0;
}
