// multipart/form-data (RFC 7578): the fields of a form, as uploads come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vllm::server {

struct FormField {
  std::string name;
  bool is_file = false;   // it has a file's name
  std::string_view data;  // in the body
};

inline constexpr size_t kMaxFormFields = 64;

// `content_type` gives the boundary. Strict: every part ends in a boundary's line and has a name,
// the last one has the closing boundary. Errors: kInvalidArgument.
base::Result<std::vector<FormField>> ParseForm(std::string_view content_type,
                                               std::string_view body);

}  // namespace vllm::server
