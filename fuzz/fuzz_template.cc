// Any text as a chat template: parse (which probes it), then render a small conversation.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "vllm/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 16384) return 0;
  const auto parsed = vllm::text::ChatTemplate::Parse(
      std::string(reinterpret_cast<const char*>(data), size), "fuzz", {.bos_token = "<s>"});
  if (!parsed) return 0;
  vllm::text::ChatInput input;
  const auto messages = base::ParseJson(
      R"([{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]},
          {"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
          {"role":"tool","content":"t"},{"role":"user","content":"v"}])");
  input.messages = messages->get_array();
  (void)(*parsed)->Render(input);
  return 0;
}
