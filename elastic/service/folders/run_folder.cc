#include "elastic/service/folders/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"
#include "base/system/write_all.h"
#include "base/yaml/quote.h"

namespace heddle::elastic {
namespace {

constexpr const char* kLockFile = "/coordinator.lock";
constexpr const char* kJobHashFile = "/job.hash";
constexpr const char* kJobFile = "/job.yaml";

/// Creates the file with its content, or not at all. Of two callers only one succeeds, also on
/// storage that does not share locks. Errors: kFailedPrecondition (the file exists).
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

/// Copies the rest of `from` to `to` and syncs it; `path` names `to` in messages.
Status CopyRest(int from, int to, const std::string& path) {
  std::string block(1 << 20, '\0');
  ssize_t got = 0;
  while ((got = ::read(from, block.data(), block.size())) > 0) {
    HEDDLE_RETURN_IF_ERROR(
        WriteAll(to, std::string_view(block).substr(0, static_cast<size_t>(got)), path));
  }
  return got == 0 && ::fsync(to) == 0 ? Status::Ok() : ErrnoError(errno, "copy to " + path);
}

/// Replaces the file by a synced copy under the same name; does nothing if it is missing.
Status ReplaceByCopy(const std::string& path) {
  const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from.valid()) {
    return errno == ENOENT ? Status::Ok() : ErrnoError(errno, "open " + path);
  }
  const std::string draft = path + "." + std::to_string(::getpid());
  const UniqueFd to(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!to.valid()) {
    return ErrnoError(errno, "open " + draft);
  }
  Status status = CopyRest(from.get(), to.get(), draft);
  if (status.ok() && ::rename(draft.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, "rename " + draft);
  }
  if (!status.ok()) {
    ::unlink(draft.c_str());
    return status;
  }
  return SyncFolder(FolderOf(path));
}

/// The text of a lock file taken in this term.
std::string FormatTerm(const StoreTerm& term) {
  return fmt::format("{} {}\n", term.number, term.store);
}

/// True if the lock file's text is of an earlier term of the same store.
bool IsEarlier(const std::string& file, const StoreTerm& term) {
  int64_t number = 0;
  const char* const end = file.data() + file.size();
  const auto [rest, error] = std::from_chars(file.data(), end, number);
  return !term.store.empty() && error == std::errc() && number < term.number &&
         std::string(rest, end) == fmt::format(" {}\n", term.store);
}

/// True if the open file still has this name: its former holder may have removed it.
bool IsAt(int fd, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

// ---- The claim ----

Result<std::unique_ptr<FolderClaim>> FolderClaim::Take(const Options& options) {
  auto claim = std::unique_ptr<FolderClaim>(new FolderClaim(options.folder, options.job_hash));
  claim->made_folder_ = !FileExists(options.folder);
  HEDDLE_RETURN_IF_ERROR(
      MakeFolders(options.folder).WithContext("output folder {}", options.folder));
  HEDDLE_RETURN_IF_ERROR(claim->Lock(options.term).WithContext("output folder {}", options.folder));
  if (const Status status = claim->Mark(options.job_text, options.known); !status.ok()) {
    claim->Undo();
    return status;
  }
  return claim;
}

Status FolderClaim::Lock(const StoreTerm& term) {
  const std::string path = folder_ + kLockFile;
  lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  made_lock_ = lock_.valid();
  if (!made_lock_ && errno == EEXIST) {
    lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!lock_.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  errno = 0;
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno != EWOULDBLOCK) {
    return ErrnoError(errno, "lock " + path);
  }
  const bool locked = errno == 0;
  if (!IsAt(lock_.get(), path)) {
    return FailedPreconditionError("another coordinator works in it");
  }
  if (locked) {
    const std::string text = term.store.empty() ? "" : FormatTerm(term);
    return ::ftruncate(lock_.get(), 0) == 0 ? WriteAll(lock_.get(), text, path)
                                            : ErrnoError(errno, "write " + path);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::string before, ReadFile(path, 1 << 10));
  if (!IsEarlier(before, term)) {
    return FailedPreconditionError("another coordinator works in it");
  }
  // A new lock file replaces the old one, whose holder keeps a lock that has no effect.
  const std::string draft = path + "." + std::to_string(::getpid());
  UniqueFd fresh(::open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fresh.valid() || ::flock(fresh.get(), LOCK_EX | LOCK_NB) != 0) {
    return ErrnoError(errno, "lock " + draft);
  }
  HEDDLE_RETURN_IF_ERROR(WriteAll(fresh.get(), FormatTerm(term), draft));
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    return ErrnoError(errno, "rename " + draft);
  }
  lock_ = std::move(fresh);
  return Status::Ok();
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
    // events.jsonl holds lines of a job that never began.
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

Result<std::string> RunFolderOwner(const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(std::string owner, ReadFile(folder + kJobHashFile, 1 << 10));
  while (!owner.empty() && owner.back() == '\n') {
    owner.pop_back();
  }
  return owner;
}

// ---- The files ----

Result<std::unique_ptr<RunFolder>> RunFolder::Open(const std::string& path, Log log) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(path));
  auto folder = std::unique_ptr<RunFolder>(new RunFolder(path));
  const std::string file = path + "/events.jsonl";
  if (log == Log::kAnew) {
    HEDDLE_RETURN_IF_ERROR(ReplaceByCopy(file));
  }
  HEDDLE_ASSIGN_OR_RETURN(folder->events_, EventLog::Open(file));
  return folder;
}

std::string JobFileJson(const RunAddresses& addresses,
                        const std::vector<ListWorkers::Entry>& workers) {
  std::string text = "{\"coordinator\": " + QuoteJson(addresses.coordinator) +
                     ", \"metrics\": " + QuoteJson(addresses.metrics) +
                     (addresses.guarded ? ", \"certificates\": true" : "") + ", \"workers\": [";
  bool first = true;
  for (const ListWorkers::Entry& worker : workers) {
    text += first ? "" : ", ";
    text +=
        "{\"name\": " + QuoteJson(worker.name) + ", \"pid\": " + std::to_string(worker.pid) + "}";
    first = false;
  }
  return text + "]}\n";
}

Status RunFolder::Replace(const std::string& name, const std::string& text) const {
  return WriteFileAtomically(path_ + "/" + name, text);
}

}  // namespace heddle::elastic
