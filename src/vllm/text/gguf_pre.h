// What the names in `tokenizer.ggml.pre` stand for.
#pragma once

#include <string_view>
#include <vector>

namespace vllm::text {

struct GgufPre {
  std::vector<std::string_view>
      patterns;  // Splits, each match and each gap a word, one after the other
  bool ignore_merges = false;
  bool add_bos = false;         // unless the file says otherwise
  bool add_sep = false;         // <s> and </s> around, as RoBERTa has it
  bool nfc = false;             // the model was trained on NFC text; the file doesn't say so
  bool byte_level = true;       // false: characters, spaces written as U+2581, bytes as <0x..>
  bool whole_newlines = false;  // a word of newlines that is a token is that token
};

// False for an unknown name: a guess would give plausible but wrong ids.
bool FindGgufPre(std::string_view name, GgufPre* pre);

}  // namespace vllm::text
