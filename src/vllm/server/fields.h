// Reading a request's JSON object, field by field, against a table of every field there is.
//
//   Fields f(object, kTable, "");   // refuses unknown fields and those that the table refuses
//   f.Number("temperature", &p.temperature);
//   if (f.error()) ...              // the first thing that was wrong
//
// A field that is null counts as absent. After the first error reads do nothing.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vllm/server/api_error.h"

namespace vllm::server {

struct Field {
  std::string_view name;
  // Empty: the field is read and takes effect. Else the values that are accepted, as JSON text with
  // '|' between them ("false|\"auto\""), or kinds: <any>, <string>, <object>. They have no effect;
  // every other value is refused.
  std::string_view accepted = {};
  std::string_view reason = {};  // for a refusal: why, or what to do instead
};

class Fields {
 public:
  // `where`: in front of names in errors ("messages[0]."); "" at the top.
  Fields(const boost::json::object& object, std::span<const Field> table, std::string where);

  const std::optional<ApiError>& error() const { return error_; }
  // nullptr when absent or null.
  const boost::json::value* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  void Fail(std::string_view name, std::string_view what);  // "name what"
  void Adopt(const Fields& inner);                          // the error of a nested object

  void Bool(std::string_view name, bool* out);
  void Int(std::string_view name, int64_t* out, int64_t low = std::numeric_limits<int64_t>::min(),
           int64_t high = std::numeric_limits<int64_t>::max());
  void Int(std::string_view name, int32_t* out, int64_t low = std::numeric_limits<int32_t>::min(),
           int64_t high = std::numeric_limits<int32_t>::max());
  void Number(std::string_view name, float* out);
  void String(std::string_view name, std::string* out, size_t most_bytes = 1 << 16);
  // A list of integers that are token ids by their range, at most `most`.
  void Ids(std::string_view name, std::vector<int32_t>* out, size_t most);
  // A list of strings, none empty, each at most `most_bytes`. With `or_one`, a lone string is a
  // list of one.
  void Strings(std::string_view name, std::vector<std::string>* out, size_t most, size_t most_bytes,
               bool or_one = false);
  const boost::json::object* Object(std::string_view name);
  const boost::json::array* Array(std::string_view name);

 private:
  const boost::json::object& object_;
  std::string where_;
  std::optional<ApiError> error_;
};

// An integer (also written 3.0), or nothing.
std::optional<int64_t> AsInt(const boost::json::value& v);

}  // namespace vllm::server
