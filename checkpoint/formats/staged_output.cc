#include "checkpoint/formats/staged_output.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"

namespace heddle::checkpoint {

namespace {

/// `path` without slashes at its end, and its temporary sibling.
Result<std::pair<std::string, std::string>> Names(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.empty() || name == "." || name == "..") {
    return InvalidArgumentError("'{}' names no file or folder to write", path);
  }
  std::string temporary = fmt::format("{}/.{}.tmp-{}", FolderOf(path), name, ::getpid());
  // An earlier process with this number may have been killed here.
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  return std::pair(std::move(path), std::move(temporary));
}

Status SyncFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  return ::fsync(fd.get()) == 0 ? Status::Ok() : ErrnoError(errno, "sync " + path);
}

/// A file, or a folder of files.
Status SyncAll(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return SyncFile(path);
  }
  std::filesystem::directory_iterator entry(path, error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    HEDDLE_RETURN_IF_ERROR(SyncFile(entry->path().string()));
  }
  return error ? ErrnoError(error.value(), "list " + path) : SyncFolder(path);
}

}  // namespace

Result<StagedOutput> StagedOutput::File(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(auto names, Names(path));
  return StagedOutput(std::move(names.first), std::move(names.second));
}

Result<StagedOutput> StagedOutput::Folder(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(auto staged, File(path));
  std::error_code error;
  if (!std::filesystem::create_directory(staged.temporary_, error)) {
    return ErrnoError(error ? error.value() : EEXIST, "create folder " + staged.temporary_);
  }
  return staged;
}

StagedOutput::StagedOutput(StagedOutput&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})) {}

StagedOutput::~StagedOutput() {
  if (!temporary_.empty()) {
    std::error_code error;
    std::filesystem::remove_all(temporary_, error);
  }
}

Status StagedOutput::Commit(bool replace) {
  HEDDLE_RETURN_IF_ERROR(SyncAll(temporary_));
  if (replace &&
      ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    // The old one has the temporary name now; the destructor removes it.
    return SyncFolder(FolderOf(path_));
  }
  if (replace && errno != ENOENT) {
    return ErrnoError(errno, "exchange " + temporary_ + " and " + path_);
  }
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    return ErrnoError(errno, "rename " + temporary_ + " to " + path_);
  }
  temporary_.clear();
  return SyncFolder(FolderOf(path_));
}

Result<OutputFile> OutputFile::Create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoError(errno, "create " + path);
  }
  return OutputFile(std::move(fd), path);
}

Status OutputFile::Append(std::span<const std::byte> bytes) {
  HEDDLE_RETURN_IF_ERROR(WriteAt(bytes_, bytes));
  bytes_ += static_cast<int64_t>(bytes.size());
  return Status::Ok();
}

Status OutputFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoError(errno, "write " + path_);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return Status::Ok();
}

Status OutputFile::Close() {
  return ::close(fd_.Release()) == 0 ? Status::Ok() : ErrnoError(errno, "close " + path_);
}

}  // namespace heddle::checkpoint
