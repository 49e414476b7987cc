// Template text into tokens, with the whitespace rules of trim_blocks and lstrip_blocks. Internal
// to the chat templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "vllm/text/jinja_value.h"

namespace vllm::text::jinja {

enum class Tok : uint8_t {
  kData,           // text outside of tags, whitespace control applied
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,   // unescaped
  kInteger,  // value
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  Tok type = Tok::kEnd;
  std::string text;
  Value value;               // of kInteger and kFloat
  int line = 1, column = 1;  // 1-based, columns in bytes
};

// Throws Failure (TemplateSyntaxError) with line and column.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace vllm::text::jinja
