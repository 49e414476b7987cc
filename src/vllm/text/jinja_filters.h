// Where FindFilter looks further: the filters that make or change text.
#pragma once

#include <string_view>

#include "vllm/text/jinja_interpreter.h"

namespace vllm::text::jinja {

FilterFunction FindTextFilter(std::string_view name);  // null: none

}  // namespace vllm::text::jinja
