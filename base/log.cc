#include "base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace heddle {
namespace {

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> kLogger = [] {
    auto made = std::make_shared<spdlog::logger>("heddle",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *kLogger;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void ConfigureLog(LogLevel level, const std::string& component) {
  Logger().set_level(LevelOf(level));
  Logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %l " + component + " %v");
}

void LogLine(LogLevel level, std::string_view message) {
  Logger().log(LevelOf(level), "{}", message);
}

}  // namespace heddle
