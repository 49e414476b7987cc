// Lines on stderr with a time and a level. Thread-safe.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>

namespace vllm::server {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError, kNone };
// "debug", "info", "warning", "error".
std::optional<LogLevel> LogLevelNamed(std::string_view name);

class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}
  bool Shows(LogLevel level) const { return level >= level_; }
  void Write(LogLevel level, std::string_view line) const;
  void Debug(std::string_view line) const { Write(LogLevel::kDebug, line); }
  void Info(std::string_view line) const { Write(LogLevel::kInfo, line); }
  void Warning(std::string_view line) const { Write(LogLevel::kWarning, line); }
  void Error(std::string_view line) const { Write(LogLevel::kError, line); }

 private:
  LogLevel level_;
};

}  // namespace vllm::server
