// JSON text in, values out: Boost.JSON behind limits that a hostile file cannot pass.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace base {

struct JsonLimits {
  int max_depth = 64;                  // nesting of arrays and objects
  size_t max_bytes = size_t{1} << 30;  // of text
};

// Parses one JSON document (UTF-8; a byte order mark is refused). Duplicate keys: the last one
// wins. Errors: kCorrupt with line and column.
Result<boost::json::value> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Reads and parses a file. Errors name the path.
Result<boost::json::value> ParseJsonFile(const std::string& path, const JsonLimits& limits = {});

// Typed reads of an object's field. A missing field, or null, gives `fallback`; another type is an
// error that names the field. Integers accept a float with an integral value (1e6).
// A member that is there and not null, or nullptr.
const boost::json::value* JsonGiven(const boost::json::object& o, std::string_view key);

Result<int64_t> JsonInt(const boost::json::object& o, std::string_view key, int64_t fallback);
Result<double> JsonNumber(const boost::json::object& o, std::string_view key, double fallback);
Result<bool> JsonBool(const boost::json::object& o, std::string_view key, bool fallback);
Result<std::string> JsonString(const boost::json::object& o, std::string_view key,
                               std::string_view fallback);

}  // namespace base
