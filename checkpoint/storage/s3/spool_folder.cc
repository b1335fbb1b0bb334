#include "checkpoint/storage/s3/spool_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "heddle-spool-";
constexpr int kAttempts = 10;

/// Locks a folder; invalid: the folder is gone or another process holds its lock.
UniqueFd TryLock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts {};
  const bool is_mine = fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
                       ::fstat(fd.get(), &facts) == 0 && facts.st_nlink > 0 &&
                       facts.st_uid == ::geteuid();
  return is_mine ? std::move(fd) : UniqueFd();
}

void RemoveDead(const std::string& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) {
      continue;
    }
    if (const UniqueFd lock = TryLock(entry->path().string()); lock.valid()) {
      std::error_code ignored;  // The next one tries again.
      fs::remove_all(entry->path(), ignored);
    }
  }
}

}  // namespace

SpoolFolder::SpoolFolder(std::string path, UniqueFd lock)
    : path_(std::move(path)),
      lock_(std::move(lock)) {}

SpoolFolder::~SpoolFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Result<std::unique_ptr<SpoolFolder>> SpoolFolder::Create() {
  const char* const variable =
      std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const std::string parent = variable != nullptr && *variable != '\0' ? variable : "/tmp";
  RemoveDead(parent);
  for (int i = 0; i < kAttempts; ++i) {
    std::string path = parent + "/" + kPrefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return ErrnoError(errno, "make " + path);
    }
    // Before it is locked another process may take it for a dead one's.
    if (UniqueFd lock = TryLock(path); lock.valid()) {
      return std::unique_ptr<SpoolFolder>(new SpoolFolder(std::move(path), std::move(lock)));
    }
  }
  return UnavailableError("{}: no folder could be kept there", parent);
}

}  // namespace heddle::checkpoint
