/// \file
/// The log of a run, events.jsonl, read: while it grows, and whoever has it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// A line of the log.
struct RunEvent {
  double time = 0;   ///< Seconds since the epoch.
  LogEvent event;    ///< Without fields that are null; lists and objects as RawJson.
  std::string line;  ///< As it stands in the log, without its end.
};

/// Errors: kInvalidArgument, the line is no event. Thread-safe.
Result<RunEvent> ParseEvent(std::string_view line);

/// Whether nothing follows this one, unless the job is started again.
bool EndsJob(const RunEvent& event);

/// From when on events are shown, in seconds since the epoch: a plain number is that itself, a
/// duration ("10m") is so long before `now`. Errors: kInvalidArgument.
Result<double> ParseSince(const std::string& text, double now);

/// At most kMostEventBytes of a run folder's log, from a byte on; empty: that is its end, or there
/// is none yet. Errors: kInvalidArgument (a negative offset), kUnavailable (it cannot be read).
Result<std::string> ReadEventBytes(const std::string& run_folder, int64_t offset);
inline constexpr size_t kMostEventBytes = 1 << 20;

/// Thread: one caller at a time.
class EventReader {
 public:
  /// Bytes of the log from an offset on, as ReadEventBytes has them.
  using ReadBytes = std::function<Result<std::string>(int64_t offset)>;
  explicit EventReader(ReadBytes read) : read_(std::move(read)) {}

  /// Some of the lines that are complete and were not returned before; empty: there are none now.
  /// Errors: those of `read`; kInvalidArgument, a line of more than 64 MiB.
  Result<std::vector<std::string>> Next();

 private:
  ReadBytes read_;
  int64_t offset_ = 0;
};

}  // namespace heddle::elastic
