/// \file
/// The log of a run, events.jsonl, written: no line is lost where storage cannot be written for a
/// while.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "elastic/control/log_event.h"

namespace heddle::elastic {

/// Thread: any.
class EventLog {
 public:
  /// What may wait in memory, of the lines that could not be written: more than a day of steps of a
  /// second. Later ones are dropped until those are written; the process's own log says so.
  static constexpr size_t kMostWaiting = 32 << 20;

  /// A file that is there is appended to, after the part of a line that a crash has left at its end
  /// was removed.
  static Result<std::unique_ptr<EventLog>> Open(const std::string& path);
  /// Tries once more to write what waits; says how many lines are lost.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// One line, in the order of the calls, of an event at `time` (base/clock.h WallClockSeconds). A
  /// line that cannot be written waits in memory for a later call; the file never holds half of one
  /// that is not its last. The first error and the return to writing are said in the process's own
  /// log.
  void Append(const LogEvent& event, double time);
  /// Tries once more to write what waits; then all that was appended outlives the machine's end.
  /// Errors: kUnavailable while something cannot be written.
  Status Sync();

 private:
  EventLog(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  /// Removes half a line at the file's end, and from what waits the lines that arrived.
  Status Settle() HEDDLE_REQUIRES(mutex_);
  /// Writes what waits, and says in the process's own log when that fails or works again.
  Status Flush() HEDDLE_REQUIRES(mutex_);
  Status Write() HEDDLE_REQUIRES(mutex_);

  const std::string path_;
  const UniqueFd fd_;
  Mutex mutex_;
  /// Of the file, as far as it is known to consist of whole lines.
  int64_t size_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::string waiting_ HEDDLE_GUARDED_BY(mutex_);
  int64_t waiting_lines_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t dropped_lines_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool failed_ HEDDLE_GUARDED_BY(mutex_) = false;  ///< The last attempt to write.
};

}  // namespace heddle::elastic
