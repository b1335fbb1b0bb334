/// \file
/// The writer of a run's log, events.jsonl. Lines wait in memory while storage cannot be written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// The log of a run, open for writing. Thread: any.
class EventLog {
 public:
  /// Most bytes of lines that wait in memory; enough for a day of one-second steps. Further lines
  /// are dropped until those are written, and the process's own log says so.
  static constexpr size_t kMaxWaiting = 32 << 20;

  /// Opens the log for appending, and creates it if it is missing. Removes the part of a line that
  /// a crash has left at its end. Errors: those of the file system.
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);
  /// Tries once more to write the waiting lines; logs how many are lost if that fails.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Appends a line for an event at `time` (base/clock.h WallClockSeconds), in the order of the
  /// calls. A line that cannot be written waits in memory for a later call. Only the file's last
  /// line may be incomplete. The first error and the recovery are logged in the process's own log.
  void Append(const LogEvent& event, double time);
  /// Writes the waiting lines and syncs the file, so that every appended line survives a crash of
  /// the machine. Errors: kUnavailable (lines cannot be written), those of syncing.
  Status Sync();

 private:
  EventLog(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  /// Removes an incomplete line at the file's end, and drops the waiting lines that the file has.
  Status Settle() HEDDLE_REQUIRES(mutex_);
  /// Writes the waiting lines, and logs when that fails for the first time or works again.
  Status Flush() HEDDLE_REQUIRES(mutex_);
  /// Writes the waiting lines.
  Status Write() HEDDLE_REQUIRES(mutex_);

  const std::string path_;
  const UniqueFd fd_;
  Mutex mutex_;
  /// Bytes of the file that are known to be whole lines.
  int64_t size_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::string waiting_ HEDDLE_GUARDED_BY(mutex_);
  int64_t waiting_lines_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t dropped_lines_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool failed_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< The last attempt to write failed.
};

}  // namespace heddle::elastic
