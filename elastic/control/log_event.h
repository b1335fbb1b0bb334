/// \file
/// One entry of a run's log, events.jsonl, and its line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::elastic {

/// Text that is JSON already.
struct RawJson {
  std::string text;
  friend bool operator==(const RawJson&, const RawJson&) = default;
};

struct LogEvent {
  using Value = std::variant<int64_t, double, std::string, RawJson>;
  std::string kind;  ///< "step", "plan", …
  std::vector<std::pair<std::string, Value>> fields;

  /// Null when there is no such field.
  const Value* Find(const std::string& name) const;
  friend bool operator==(const LogEvent&, const LogEvent&) = default;
};

/// One JSON object without a newline: "time" (seconds since the epoch, microseconds), "event", then
/// the fields in order. Doubles have 9 significant digits; what is not finite is null.
std::string FormatLogEvent(const LogEvent& event, double wall_clock_seconds);

}  // namespace heddle::elastic
