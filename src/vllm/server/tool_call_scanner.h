// Reads one call, a JSON object {"name": ..., "arguments": {...}}, as its text comes. Private to
// the tool parser.
#pragma once

#include <boost/json/stream_parser.hpp>
#include <string>
#include <string_view>

namespace vllm::server {

// White space as JSON has it.
inline bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class ToolCallScanner {
 public:
  enum class State { kOpen, kDone, kBroken };

  // Takes the next character. After kDone or kBroken nothing more may be pushed.
  State Push(char c);

  // The name, once it is complete.
  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  // JSON text of the arguments so far, as written; "{}" for a call without any when done.
  const std::string& arguments() const { return arguments_; }
  // Whether the arguments' text can be passed on before the call is complete.
  bool arguments_open() const { return in_arguments_ || arguments_whole_; }
  bool arguments_whole() const { return arguments_whole_; }

 private:
  State Value(char c);
  void EndValue();

  boost::json::stream_parser valid_;  // judges the syntax; the rest tracks where in it we are
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
  bool key_turn_ = true;  // at depth 1: a key is next, or being read
  std::string key_, value_;
  std::string name_, arguments_;
  bool has_name_ = false, in_arguments_ = false, arguments_whole_ = false;
};

}  // namespace vllm::server
