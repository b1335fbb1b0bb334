#include "elastic/service/run_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

Status WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoError(errno, "write " + path);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return Status::Ok();
}

/// Removes what follows the last line's end: the part of a line whose write a crash or a full disk
/// has cut. Not a line to keep: no reader could parse it.
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

Result<std::unique_ptr<RunFolder>> RunFolder::Open(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(path));
  auto folder = std::unique_ptr<RunFolder>(new RunFolder(path));
  const std::string file = path + "/events.jsonl";
  folder->events_ = UniqueFd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!folder->events_.valid()) {
    return ErrnoError(errno, "open " + file);
  }
  HEDDLE_RETURN_IF_ERROR(CutHalfLine(folder->events_.get(), file));
  return folder;
}

void RunFolder::SetAddresses(const std::string& coordinator, const std::string& metrics) {
  coordinator_ = coordinator;
  metrics_ = metrics;
}

Status RunFolder::Append(const LogEvent& event) {
  // One write a line: a reader of a running job never sees half of one that is not the last.
  const std::string file = path_ + "/events.jsonl";
  const Status written =
      WriteAll(events_.get(), FormatLogEvent(event, WallClockSeconds()) + "\n", file);
  if (!written.ok()) {
    HEDDLE_RETURN_IF_ERROR(
        CutHalfLine(events_.get(), file).WithContext("after {}", written.message()));
  }
  return written;
}

Status RunFolder::Sync() {
  return ::fdatasync(events_.get()) == 0 ? Status::Ok()
                                         : ErrnoError(errno, "sync " + path_ + "/events.jsonl");
}

Status RunFolder::WriteJobFile(const std::vector<ListWorkers::Entry>& workers) {
  std::string text = "{\"coordinator\": " + QuoteJson(coordinator_) +
                     ", \"metrics\": " + QuoteJson(metrics_) + ", \"workers\": [";
  bool first = true;
  for (const ListWorkers::Entry& worker : workers) {
    text += first ? "" : ", ";
    text +=
        "{\"name\": " + QuoteJson(worker.name) + ", \"pid\": " + std::to_string(worker.pid) + "}";
    first = false;
  }
  return WriteFileAtomically(path_ + "/job.json", text + "]}\n");
}

}  // namespace heddle::elastic
