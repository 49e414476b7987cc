#include "vllm/server/api_error.h"

#include <algorithm>

#include "vllm/server/json_text.h"

namespace vllm::server {

std::string ErrorBody(const ApiError& error) {
  std::string_view type = "invalid_request_error";
  if (error.status == 401) type = "authentication_error";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status >= 500) type = "server_error";
  std::string out = R"({"error":{"message":)";
  AppendJsonString(error.message, out);
  out += R"(,"type":")";
  out += type;
  out += R"(","param":)";
  error.param.empty() ? void(out += "null") : AppendJsonString(error.param, out);
  out += R"(,"code":)";
  error.code.empty() ? void(out += "null") : AppendJsonString(error.code, out);
  out += "}}";
  return out;
}

ApiError FromError(const base::Error& error) {
  ApiError e;
  e.message = error.message;
  switch (error.code) {
    case base::Code::kInvalidArgument:
    case base::Code::kUnsupported:
    case base::Code::kCorrupt: {
      e.status = 400;
      const std::string_view word =
          std::string_view(e.message).substr(0, e.message.find_first_of(" :["));
      const bool field = word == "messages" || word == "tools" || word == "prompt" || word == "n" ||
                         word == "seed" || word == "stop" || word == "temperature" ||
                         word.find('_') != std::string_view::npos;
      if (field && std::all_of(word.begin(), word.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || c == '_' || (c >= '0' && c <= '9');
          })) {
        e.param = word;
      }
      break;
    }
    case base::Code::kResourceExhausted:
      e.status = 429;
      e.code = "rate_limit_exceeded";
      e.retry_after = 1;
      break;
    case base::Code::kUnavailable:
    case base::Code::kCancelled:
      e.status = 503;
      e.retry_after = 1;
      break;
    default:
      e.status = 500;
  }
  return e;
}

}  // namespace vllm::server
