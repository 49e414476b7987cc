// Errors in OpenAI's shape.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace vllm::server {

struct ApiError {
  int status = 400;
  std::string message = {};
  std::string param = {};  // the field; empty: null
  std::string code = {};   // "model_not_found", ...; empty: null
  int retry_after = 0;
};

// {"error": {"message", "type", "param", "code"}}; the type follows from the status.
std::string ErrorBody(const ApiError& error);

// An error of the engine or the text room as an answer: a bad argument is 400, a full queue 429,
// a dead or draining engine 503. A sentence that begins with a field's name names it as param.
ApiError FromError(const base::Error& error);

}  // namespace vllm::server
