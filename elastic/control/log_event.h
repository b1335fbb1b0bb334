/// \file
/// One entry of a run's log (events.jsonl) and its format.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::elastic {

/// A value that is JSON text already.
struct RawJson {
  std::string text;
  friend bool operator==(const RawJson&, const RawJson&) = default;
};

/// One entry of the log.
struct LogEvent {
  using Value = std::variant<int64_t, double, std::string, RawJson>;
  std::string kind;  ///< "step", "plan", …
  std::vector<std::pair<std::string, Value>> fields;

  /// The value of a field; null if there is no such field.
  const Value* Find(const std::string& name) const;
  friend bool operator==(const LogEvent&, const LogEvent&) = default;
};

/// Returns one JSON object without a newline: "time" (seconds since the epoch, to the microsecond),
/// "event", then the fields in order. Doubles have 9 significant digits; NaN and infinities are
/// null.
std::string FormatLogEvent(const LogEvent& event, double wall_clock_seconds);

}  // namespace heddle::elastic
