#include "base/system/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/system/unique_fd.h"
#include "base/system/write_all.h"

namespace heddle {
namespace {

Status WriteAndSync(const std::string& path, std::string_view content) {
  // A link in the place of a draft is somebody's trap.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoError(errno, "create " + path);
  }
  HEDDLE_RETURN_IF_ERROR(WriteAll(fd.get(), content, path));
  if (::fsync(fd.get()) != 0) {
    return ErrnoError(errno, "sync " + path);
  }
  // close() may report a write error of a network file system.
  if (::close(fd.Release()) != 0) {
    return ErrnoError(errno, "close " + path);
  }
  return Status::Ok();
}

/// Without what the file system passes over: ".", and "x/.." where x is a folder and no link.
std::string Shortened(const std::filesystem::path& path) {
  std::filesystem::path made;
  for (const std::filesystem::path& name : path) {
    std::error_code error;
    if (name == "." || (name == ".." && made == "/")) {
      continue;
    }
    if (name == ".." && made.filename() != ".." &&
        std::filesystem::is_directory(std::filesystem::symlink_status(made, error))) {
      made = made.parent_path();
      continue;
    }
    made /= name;
  }
  return made.empty() ? "." : made.string();
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, int64_t limit) {
  // O_NONBLOCK: a FIFO without a writer must not hold the open() up.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) {
    return ErrnoError(errno, "stat " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return InvalidArgumentError("{}: {}", path,
                                S_ISDIR(facts.st_mode) ? "is a folder" : "is not a regular file");
  }
  if (facts.st_size > limit) {
    return ResourceExhaustedError("{}: {} bytes, at most {} are read", path, facts.st_size, limit);
  }
  std::string content;
  content.reserve(static_cast<size_t>(facts.st_size));
  std::array<char, 65536> piece;
  while (true) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return ErrnoError(errno, "read " + path);
    }
    if (got == 0) {
      return content;
    }
    content.append(piece.data(), static_cast<size_t>(got));
    // The file may grow while it is read.
    if (static_cast<int64_t>(content.size()) > limit) {
      return ResourceExhaustedError("{}: grew beyond {} bytes", path, limit);
    }
  }
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  Status status = WriteAndSync(temporary, content);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, "rename " + temporary + " to " + path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncFolder(FolderOf(path));
}

Status MakeFolders(const std::string& path) {
  for (const std::filesystem::path& name : std::filesystem::path(path)) {
    if (name.native().size() > NAME_MAX) {
      return ErrnoError(ENAMETOOLONG, "create folder " + path);
    }
  }
  if (path.size() >= PATH_MAX) {
    return ErrnoError(ENAMETOOLONG, "create folder " + path);
  }
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return ErrnoError(error.value(), "create folder " + path);
  }
  // create_directories() is content with a link to nothing and with some file systems' oddities.
  if (!std::filesystem::is_directory(path, error)) {
    return InvalidArgumentError("{}: is not a folder", path);
  }
  return Status::Ok();
}

Status SyncFolder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, "open folder " + path);
  }
  // EINVAL: a file system whose folders cannot be synced; there a rename is as durable as it gets.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return ErrnoError(errno, "sync folder " + path);
  }
  return Status::Ok();
}

bool FileExists(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return path.substr(0, std::max<size_t>(slash, 1));
}

std::string ResolvePath(const std::string& folder, const std::string& path) {
  if (path.starts_with('/') || folder.empty() || folder == ".") {
    return path;
  }
  return Shortened(std::filesystem::path(folder) / path);
}

Result<std::string> AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) {
    return ErrnoError(error.value(), "working folder");
  }
  return Shortened(absolute);
}

TemporaryFolder::TemporaryFolder() {
  const char* root = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  path_ = std::string(root != nullptr && *root != '\0' ? root : "/tmp") + "/heddle-XXXXXX";
  HEDDLE_CHECK(::mkdtemp(path_.data()) != nullptr, "cannot create {}", path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace heddle
