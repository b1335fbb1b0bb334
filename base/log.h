/// \file
/// Structured logging: one line "TIME LEVEL COMPONENT message key=value …" on standard error. An
/// error is logged once, where it is handled; code that returns an error adds context and does not
/// log.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace heddle {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

/// Sets the lowest level that is written and the component's name (for example "worker-2").
void ConfigureLog(LogLevel level, const std::string& component);

/// Writes one line. Thread: any.
void LogLine(LogLevel level, std::string_view message);

template <typename... A>
void LogDebug(fmt::format_string<A...> format, A&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<A>(args)...));
}
template <typename... A>
void LogInfo(fmt::format_string<A...> format, A&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<A>(args)...));
}
template <typename... A>
void LogWarning(fmt::format_string<A...> format, A&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<A>(args)...));
}
template <typename... A>
void LogError(fmt::format_string<A...> format, A&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<A>(args)...));
}

}  // namespace heddle
