#include "vllm/server/tool_call_scanner.h"

#include <boost/json/parse.hpp>

namespace vllm::server {
namespace json = boost::json;
namespace {

// A JSON string's meaning; empty for anything else.
std::string Unquoted(const std::string& text) {
  boost::system::error_code ec;
  const json::value v = json::parse(text, ec);
  return !ec && v.is_string() ? std::string(v.get_string()) : std::string();
}

bool Known(const std::string& key) {
  return key == "name" || key == "arguments" || key == "parameters" || key == "type" ||
         key == "id" || key == "function";
}

bool IsArguments(const std::string& key) { return key == "arguments" || key == "parameters"; }

}  // namespace

ToolCallScanner::State ToolCallScanner::Push(char c) {
  if (depth_ == 0 && !IsSpace(c) && c != '{') return State::kBroken;
  boost::system::error_code ec;
  valid_.write_some(&c, 1, ec);
  if (ec) return State::kBroken;
  return Value(c);
}

// Follows strings and nesting; the syntax is known to be right.
ToolCallScanner::State ToolCallScanner::Value(char c) {
  const bool in_value = depth_ >= 1 && !key_turn_;
  if (in_string_) {
    if (depth_ == 1 && key_turn_) key_ += c;
    if (in_value) (in_arguments_ ? arguments_ : value_) += c;
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return State::kOpen;
  }
  if (IsSpace(c) && depth_ <= 1) return State::kOpen;
  if (depth_ == 1) {
    if (c == ':') {  // only between a key and its value
      if (key_turn_) {
        key_ = Unquoted(key_);
        if (!Known(key_)) return State::kBroken;
        key_turn_ = false;
        value_.clear();
        return State::kOpen;
      }
    } else if (c == ',' || c == '}') {
      if (!key_turn_) EndValue();
      key_.clear();
      key_turn_ = true;
      if (c == ',') return State::kOpen;
      depth_ = 0;
      if (!has_name_) return State::kBroken;
      if (!arguments_whole_) arguments_ = "{}";
      arguments_whole_ = true;
      return State::kDone;
    } else if (!key_turn_ && value_.empty() && !in_arguments_ && !arguments_whole_ && c == '{' &&
               IsArguments(key_)) {
      in_arguments_ = true;
    }
  }
  if (c == '"') in_string_ = true;
  if (depth_ == 1 && key_turn_) key_ += c;
  if (in_value) (in_arguments_ ? arguments_ : value_) += c;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (in_arguments_ && depth_ == 1) {
    in_arguments_ = false;
    arguments_whole_ = true;
  }
  return State::kOpen;
}

void ToolCallScanner::EndValue() {
  if ((key_ == "name" || key_ == "function") && !has_name_) {
    name_ = Unquoted(value_);
    has_name_ = !name_.empty();
  } else if (IsArguments(key_) && !arguments_whole_) {
    // Some models write the arguments as a string of JSON text.
    arguments_ = Unquoted(value_);
    arguments_whole_ = !arguments_.empty();
  }
}

}  // namespace vllm::server
