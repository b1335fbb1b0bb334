#include "elastic/service/run_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

constexpr const char* kLockFile = "/coordinator.lock";
constexpr const char* kJobHashFile = "/job.hash";
constexpr const char* kJobFile = "/job.yaml";

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

/// Creates the file with its content, or not at all: of two that try only one succeeds, also where
/// locks are not shared. Errors: kFailedPrecondition when it is there.
Status CreateWhole(const std::string& path, const std::string& content) {
  const std::string draft = path + "." + std::to_string(::getpid());
  HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(draft, content));
  const int error = ::link(draft.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(draft.c_str());
  if (error == EEXIST) {
    return FailedPreconditionError("{}: it is there already", path);
  }
  return error == 0 ? SyncFolder(FolderOf(path)) : ErrnoError(error, "create " + path);
}

/// Whether the open file is still the one of this name, and was not removed by who had it before.
bool IsAt(int fd, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

// ---- Whose it is ----

Result<std::unique_ptr<FolderClaim>> FolderClaim::Take(const std::string& folder,
                                                       const std::string& job_hash,
                                                       const std::string& job_text,
                                                       bool known) {
  const auto context = [&](const Status& status) {
    return status.WithContext("output folder {}", folder);
  };
  auto claim = std::unique_ptr<FolderClaim>(new FolderClaim(folder, job_hash));
  claim->made_folder_ = !FileExists(folder);
  HEDDLE_RETURN_IF_ERROR(context(MakeFolders(folder)));
  const std::string path = folder + kLockFile;
  claim->lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  claim->made_lock_ = claim->lock_.valid();
  if (!claim->made_lock_ && errno == EEXIST) {
    claim->lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  if (!claim->lock_.valid()) {
    return context(ErrnoError(errno, "open " + path));
  }
  errno = 0;
  if (::flock(claim->lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno != EWOULDBLOCK) {
    return context(ErrnoError(errno, "lock " + path));
  }
  if (errno == EWOULDBLOCK || !IsAt(claim->lock_.get(), path)) {
    return FailedPreconditionError("output folder {}: another coordinator works in it", folder);
  }
  if (const Status status = claim->Mark(job_text, known); !status.ok()) {
    claim->Undo();
    return status;
  }
  return claim;
}

Status FolderClaim::Mark(const std::string& job_text, bool known) {
  const std::string path = folder_ + kJobHashFile;
  Result<std::string> owner = ReadFile(path, 1 << 10);
  if (owner.status().code() == StatusCode::kNotFound) {
    if (FileExists(folder_ + "/events.jsonl") && !known) {
      return InvalidArgumentError(
          "output folder {} holds a run of another program: choose another with --out", folder_);
    }
    const Status created = CreateWhole(path, job_hash_ + "\n");
    if (created.code() != StatusCode::kFailedPrecondition) {
      HEDDLE_RETURN_IF_ERROR(created);
      marked_ = !known;
      return WriteFileAtomically(folder_ + kJobFile, job_text);
    }
    owner = ReadFile(path, 1 << 10);
  }
  HEDDLE_RETURN_IF_ERROR(owner.status());
  if (*owner != job_hash_ + "\n") {
    return InvalidArgumentError(
        "output folder {} belongs to another job: choose another with --out, or run the same job "
        "to resume it",
        folder_);
  }
  return Status::Ok();
}

void FolderClaim::Undo() {
  if (marked_) {
    // The lines of a job that never began.
    for (const char* name : {"/events.jsonl", kJobFile, kJobHashFile}) {
      ::unlink((folder_ + name).c_str());
    }
  }
  if (made_lock_) {
    ::unlink((folder_ + kLockFile).c_str());
  }
  if (made_folder_) {
    ::rmdir(folder_.c_str());
  }
  lock_.Reset();
}

// ---- What is in it ----

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
