#include "elastic/service/folders/event_log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system/write_all.h"

namespace heddle::elastic {
namespace {

/// Removes what follows the last newline: a line whose write was cut by a crash or a full disk, and
/// which no reader could parse.
Status CutHalfLine(int fd, const std::string& path) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  std::array<char, 4096> block;
  for (off_t end = std::max<off_t>(size, 0); end > 0;) {
    const off_t begin = std::max<off_t>(end - static_cast<off_t>(block.size()), 0);
    const ssize_t got = ::pread(fd, block.data(), static_cast<size_t>(end - begin), begin);
    if (got != end - begin) {
      return ErrnoError(got < 0 ? errno : EIO, "read " + path);
    }
    const size_t newline = std::string_view(block.data(), static_cast<size_t>(got)).rfind('\n');
    const bool found = newline != std::string_view::npos;
    end = found ? begin + static_cast<off_t>(newline) + 1 : begin;
    if ((found || end == 0) && end < size && ::ftruncate(fd, end) != 0) {
      return ErrnoError(errno, "truncate " + path);
    }
    if (found) {
      break;
    }
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  auto log = std::unique_ptr<EventLog>(new EventLog(path, std::move(fd)));
  {
    const MutexLock lock(log->mutex_);
    HEDDLE_RETURN_IF_ERROR(log->Settle());
  }
  return log;
}

EventLog::~EventLog() {
  const MutexLock lock(mutex_);
  const Status written = Write();
  if (!written.ok()) {
    LogError("{} events of {} are lost: {}", waiting_lines_, path_, written.message());
  }
}

void EventLog::Append(const LogEvent& event, double time) {
  const std::string line = FormatLogEvent(event, time) + "\n";
  const MutexLock lock(mutex_);
  // After a dropped line all later ones are dropped, too: the file would not show the gap.
  if (dropped_lines_ > 0 || waiting_.size() + line.size() > kMaxWaiting) {
    if (++dropped_lines_ == 1) {
      LogError("{}: {} bytes of events wait for room; later ones are lost", path_, waiting_.size());
    }
  } else {
    waiting_ += line;
    ++waiting_lines_;
  }
  Flush().IgnoreError("what could not be written waits");
}

Status EventLog::Sync() {
  {
    const MutexLock lock(mutex_);
    if (const Status written = Flush(); !written.ok()) {
      return UnavailableError("{}", written.message());
    }
  }
  return ::fdatasync(fd_.get()) == 0 ? Status::Ok() : ErrnoError(errno, "sync " + path_);
}

Status EventLog::Flush() {
  const int64_t lines = waiting_lines_;
  const Status written = Write();
  if (!written.ok() && !failed_) {
    LogWarning("{}; events wait in memory until it can be written", written.message());
  } else if (written.ok() && failed_) {
    LogInfo("{} can be written again: {} events had waited, {} are lost", path_, lines,
            dropped_lines_);
    dropped_lines_ = 0;
  }
  failed_ = !written.ok();
  return written;
}

Status EventLog::Settle() {
  HEDDLE_RETURN_IF_ERROR(CutHalfLine(fd_.get(), path_));
  const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  if (size < 0) {
    return ErrnoError(errno, "seek in " + path_);
  }
  const auto arrived =
      std::min(static_cast<size_t>(std::max<int64_t>(size - size_, 0)), waiting_.size());
  waiting_lines_ -=
      std::count(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(arrived), '\n');
  waiting_.erase(0, arrived);
  size_ = size;
  return Status::Ok();
}

Status EventLog::Write() {
  if (failed_) {
    HEDDLE_RETURN_IF_ERROR(Settle());
  }
  const Status written = WriteAll(fd_.get(), waiting_, path_);
  if (!written.ok()) {
    // Readers must not see an incomplete line until the next attempt.
    const Status settled = Settle();
    return settled.ok() ? written : settled.WithContext("after {}", written.message());
  }
  size_ += static_cast<int64_t>(waiting_.size());
  waiting_.clear();
  waiting_lines_ = 0;
  return Status::Ok();
}

}  // namespace heddle::elastic
