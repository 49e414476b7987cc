// The first line of the input is a text, the rest a tokenizer.json, or a tekken.json where it has a
// "config" and no "model": load, encode the text, decode the ids.
#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "vllm/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos || line > 4096) return 0;
  const auto json = base::ParseJson(input.substr(line + 1));
  if (!json) return 0;
  const boost::json::object* file = json->if_object();
  const bool tekken = file != nullptr && file->contains("config") && !file->contains("model");
  const auto tokenizer =
      tekken ? vllm::text::Tokenizer::FromTekken(*json) : vllm::text::Tokenizer::FromJson(*json);
  if (!tokenizer) return 0;
  const auto ids = (*tokenizer)->Encode(input.substr(0, line));
  if (!ids) return 0;
  for (const int32_t id : *ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
  }
  (void)(*tokenizer)->Decode(*ids, false);
  return 0;
}
