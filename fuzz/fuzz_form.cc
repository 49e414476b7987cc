// multipart/form-data: the input's first line is the Content-Type, the rest the body.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "vllm/server/multipart.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  if (end == std::string_view::npos) return 0;
  const std::string_view body = input.substr(end + 1);
  const auto form = vllm::server::ParseForm(input.substr(0, end), body);
  if (!form) return form.error().message.empty() ? (std::abort(), 0) : 0;
  for (const vllm::server::FormField& f : *form) {
    const bool inside =
        f.data.data() >= body.data() && f.data.data() + f.data.size() <= body.data() + body.size();
    if (!inside) std::abort();
  }
  return 0;
}
