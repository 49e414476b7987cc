// Reading the typed parts ({"type": "Split", ...}) of a tokenizer.json, with errors that name what
// was read.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/strings.h"

namespace vllm::text {

inline base::Error Corrupt(std::string message) {
  return {base::Code::kCorrupt, std::move(message)};
}
inline base::Error Unsupported(std::string message) {
  return {base::Code::kUnsupported, std::move(message)};
}

// `value` as an object, or an error that says what it should have been.
inline base::Result<const boost::json::object*> AsObject(const boost::json::value& value,
                                                         std::string_view what) {
  if (!value.is_object()) return Corrupt(fmt::format("{} is not a JSON object", what));
  return &value.get_object();
}

// The array field `key`, or an error.
inline base::Result<const boost::json::array*> ArrayField(const boost::json::object& o,
                                                          std::string_view key,
                                                          std::string_view what) {
  const boost::json::value* v = o.if_contains(key);
  if (v == nullptr || !v->is_array())
    return Corrupt(fmt::format("{}: \"{}\" is not an array", what, key));
  return &v->get_array();
}

inline bool IsNull(const boost::json::object& o, std::string_view key) {
  const boost::json::value* v = o.if_contains(key);
  return v == nullptr || v->is_null();
}

struct JsonPattern {
  std::string text;
  bool literal = false;
};

// A "pattern" field: {"Regex": "..."}, {"String": "..."}, or a bare string, which is literal.
inline base::Result<JsonPattern> PatternField(const boost::json::object& o, std::string_view what) {
  const boost::json::value* v = o.if_contains("pattern");
  if (v != nullptr && v->is_string()) return JsonPattern{std::string(v->get_string()), true};
  if (v != nullptr && v->is_object() && v->get_object().size() == 1) {
    const auto& field = *v->get_object().begin();
    if (field.value().is_string() && (field.key() == "Regex" || field.key() == "String")) {
      return JsonPattern{std::string(field.value().get_string()), field.key() == "String"};
    }
  }
  return Corrupt(
      fmt::format("{}: \"pattern\" is neither {{\"Regex\": ...}} nor {{\"String\": ...}}", what));
}

}  // namespace vllm::text
