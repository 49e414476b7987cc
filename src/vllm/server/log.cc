#include "vllm/server/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/strings.h"

namespace vllm::server {

std::optional<LogLevel> LogLevelNamed(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return std::nullopt;
}

void Log::Write(LogLevel level, std::string_view line) const {
  if (!Shows(level)) return;
  constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  const std::string text =
      fmt::format("{:02}:{:02}:{:02}.{:03} {}: {}\n", local.tm_hour, local.tm_min, local.tm_sec,
                  ms.count() % 1000, kNames[static_cast<int>(level)], line);
  std::fwrite(text.data(), 1, text.size(), stderr);  // one call: lines of threads stay whole
}

}  // namespace vllm::server
