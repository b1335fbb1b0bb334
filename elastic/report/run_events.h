/// \file
/// Reads the log of a run, events.jsonl, while it grows, from a run folder or any other source.
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

/// One line of the log.
struct RunEvent {
  double time = 0;   ///< Seconds since the epoch.
  LogEvent event;    ///< The event without null fields; lists and objects are RawJson.
  std::string line;  ///< The line in the log, without its end.
};

/// Parses a line of the log. Errors: kInvalidArgument (it is no event). Thread-safe.
Result<RunEvent> ParseEvent(std::string_view line);

/// True if no event follows this one unless the job is started again.
bool EndsJob(const RunEvent& event);

/// Parses the value of --since: the time from which on events are shown, in seconds since the
/// epoch.
/// A plain number is that time; a duration ("10m") is subtracted from `now`. Errors:
/// kInvalidArgument.
Result<double> ParseSince(const std::string& text, double now);

/// Reads at most kMaxEventBytes of a run folder's log from `offset` on; empty at its end, or if
/// there is no log yet. Errors: kInvalidArgument (a negative offset); those of opening and reading
/// the file (base/status.h, ErrnoError).
Result<std::string> ReadEventBytes(const std::string& run_folder, int64_t offset);
inline constexpr size_t kMaxEventBytes = 1 << 20;

/// Reads the complete lines of a log that grows. Thread: one caller at a time.
class EventReader {
 public:
  /// Returns bytes of the log from an offset on, as ReadEventBytes does.
  using ReadBytes = std::function<Result<std::string>(int64_t offset)>;
  explicit EventReader(ReadBytes read) : read_(std::move(read)) {}

  /// Some complete lines that were not returned before; empty if there are none now. Errors: those
  /// of `read`; kInvalidArgument (a line of more than 64 MiB).
  Result<std::vector<std::string>> Next();

 private:
  ReadBytes read_;
  int64_t offset_ = 0;
};

}  // namespace heddle::elastic
