#include "base/json.h"

#include <boost/json/src.hpp>
#include <boost/system/error_code.hpp>
#include <cmath>

#include "base/os/file.h"
#include "base/strings.h"

namespace base {
namespace json = boost::json;

namespace {

// "line 3, column 14" of a byte offset.
std::string Where(std::string_view text, size_t offset) {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  return fmt::format("line {}, column {}", line, offset - start + 1);
}

Error WrongType(std::string_view key, std::string_view wanted) {
  return {Code::kCorrupt, fmt::format("field '{}' must be {}", key, wanted)};
}

const json::value* Find(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

}  // namespace

Result<json::value> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{Code::kCorrupt, fmt::format("JSON text of {} bytes is over the limit of {}",
                                             text.size(), limits.max_bytes)};
  }
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.max_depth);
  json::stream_parser parser(json::storage_ptr(), options);
  boost::system::error_code ec;
  const size_t used = parser.write_some(text.data(), text.size(), ec);
  if (!ec && used < text.size()) {
    for (size_t i = used; i < text.size() && !ec; ++i) {
      if (std::string_view(" \t\r\n").find(text[i]) == std::string_view::npos) {
        return Error{Code::kCorrupt, "invalid JSON: text after the document at " + Where(text, i)};
      }
    }
  }
  if (!ec) parser.finish(ec);
  if (ec)
    return Error{Code::kCorrupt, "invalid JSON: " + ec.message() + " at " + Where(text, used)};
  return parser.release();
}

Result<json::value> ParseJsonFile(const std::string& path, const JsonLimits& limits) {
  Result<std::string> text = os::ReadFile(path, limits.max_bytes);
  if (!text) return text.error();
  Result<json::value> v = ParseJson(*text, limits);
  if (!v) return v.error().In(path);
  return v;
}

const json::value* JsonGiven(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

Result<int64_t> JsonInt(const json::object& o, std::string_view key, int64_t fallback) {
  const json::value* v = Find(o, key);
  if (v == nullptr) return fallback;
  if (v->is_int64()) return v->get_int64();
  if (v->is_double()) {
    const double d = v->get_double();
    if (std::floor(d) == d && std::abs(d) < 9.0e15) return static_cast<int64_t>(d);
  }
  return WrongType(key, "an integer");
}

Result<double> JsonNumber(const json::object& o, std::string_view key, double fallback) {
  const json::value* v = Find(o, key);
  if (v == nullptr) return fallback;
  if (v->is_double()) return v->get_double();
  if (v->is_int64()) return static_cast<double>(v->get_int64());
  if (v->is_uint64()) return static_cast<double>(v->get_uint64());
  return WrongType(key, "a number");
}

Result<bool> JsonBool(const json::object& o, std::string_view key, bool fallback) {
  const json::value* v = Find(o, key);
  if (v == nullptr) return fallback;
  if (v->is_bool()) return v->get_bool();
  return WrongType(key, "true or false");
}

Result<std::string> JsonString(const json::object& o, std::string_view key,
                               std::string_view fallback) {
  const json::value* v = Find(o, key);
  if (v == nullptr) return std::string(fallback);
  if (v->is_string()) return std::string(v->get_string());
  return WrongType(key, "a string");
}

}  // namespace base
