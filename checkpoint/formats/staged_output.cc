#include "checkpoint/formats/staged_output.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/strict_json.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOutputName = "output";

/// `path` without slashes at its end, and the folder beside it in which it is made.
Result<std::pair<std::string, std::string>> Names(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.empty() || name == "." || name == "..") {
    return InvalidArgumentError("'{}' names no file or folder to write", path);
  }
  std::string holder = fmt::format("{}/.{}.tmp", FolderOf(path), name);
  return std::pair(std::move(path), std::move(holder));
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
  if (!fs::is_directory(path, error)) {
    return SyncFile(path);
  }
  fs::directory_iterator entry(path, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    HEDDLE_RETURN_IF_ERROR(SyncFile(entry->path().string()));
  }
  return error ? ErrnoError(error.value(), "list " + path) : SyncFolder(path);
}

/// Removes everything in `folder` whose name `stays` does not want.
Status RemoveOthers(const std::string& folder,
                    const std::function<bool(const std::string&)>& stays) {
  std::error_code error;
  std::vector<fs::path> leaving;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (!stays(entry->path().filename().string())) {
      leaving.push_back(entry->path());
    }
  }
  for (const fs::path& path : leaving) {
    if (!error) {
      fs::remove_all(path, error);
    }
  }
  return error ? ErrnoError(error.value(), "clear " + folder) : Status::Ok();
}

/// Locks a folder, which is created if needed; invalid: another process removed it meanwhile.
Result<UniqueFd> TryLock(const std::string& folder, const std::string& path) {
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "create folder " + folder);
  }
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    return errno == ENOENT ? Result<UniqueFd>(UniqueFd())
                           : Result<UniqueFd>(ErrnoError(errno, "open folder " + folder));
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? UnavailableError("{} is being written by another process", path)
                                : ErrnoError(errno, "lock " + folder);
  }
  struct stat ours {};
  struct stat named {};
  const bool same = ::fstat(fd.get(), &ours) == 0 && ::lstat(folder.c_str(), &named) == 0 &&
                    ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
  return same ? std::move(fd) : UniqueFd();
}

std::string EncodeRecord(const std::string& identity, const FinishedFile& finished) {
  const nlohmann::json json = {{"identity", identity},
                               {"name", finished.file.name},
                               {"bytes", finished.file.bytes},
                               {"blocks_xxh3_128", finished.file.hash},
                               {"detail", finished.detail}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// A record, and the identity of its attempt. Errors: kDataLoss for what is none.
Result<std::pair<std::string, FinishedFile>> DecodeRecord(const std::string& text) {
  HEDDLE_ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(text, /*maximum_depth=*/1));
  const auto is_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
  if (!json.is_object() || !is_text("identity") || !is_text("name") ||
      !is_text("blocks_xxh3_128") || !is_text("detail") || !json.contains("bytes") ||
      !json["bytes"].is_number_integer()) {
    return DataLossError("not the record of a finished file");
  }
  FinishedFile finished{.file = {.name = json["name"].get<std::string>(),
                                 .bytes = json["bytes"].get<int64_t>(),
                                 .hash = json["blocks_xxh3_128"].get<std::string>()},
                        .detail = json["detail"].get<std::string>()};
  return std::pair(json["identity"].get<std::string>(), std::move(finished));
}

}  // namespace

StagedOutput::StagedOutput(std::string path, std::string holder, UniqueFd lock)
    : path_(std::move(path)),
      holder_(std::move(holder)),
      temporary_(holder_ + "/" + kOutputName),
      lock_(std::move(lock)) {}

Result<StagedOutput> StagedOutput::Lock(const std::string& path) {
  constexpr int kAttempts = 100;  // Each is lost to another process that was just done.
  HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(path));
  for (int i = 0; i < kAttempts; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(UniqueFd lock, TryLock(names.second, names.first));
    if (lock.valid()) {
      return StagedOutput(names.first, names.second, std::move(lock));
    }
  }
  return UnavailableError("{} is being written by other processes", names.first);
}

Result<StagedOutput> StagedOutput::File(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(StagedOutput staged, Lock(path));
  HEDDLE_RETURN_IF_ERROR(RemoveOthers(staged.holder_, [](const std::string&) { return false; }));
  return staged;
}

Result<StagedOutput> StagedOutput::Folder(const std::string& path, Attempt attempt) {
  HEDDLE_ASSIGN_OR_RETURN(StagedOutput staged, Lock(path));
  staged.attempt_ = std::move(attempt);
  staged.LoadFinished();
  HEDDLE_RETURN_IF_ERROR(staged.Keep(staged.finished_.size()));
  return staged;
}

StagedOutput::~StagedOutput() {
  if (lock_.valid()) {
    std::error_code error;
    fs::remove_all(holder_, error);
  }
}

std::string StagedOutput::RecordPath(size_t number) const {
  return fmt::format("{}/finished-{}.json", holder_, number);
}

void StagedOutput::LoadFinished() {
  if (!FileExists(RecordPath(0))) {
    return;
  }
  for (size_t i = 0; i < attempt_.files.size() && !attempt_.identity.empty(); ++i) {
    const auto text = ReadFile(RecordPath(i), kManifestLimit);
    auto record = text.ok() ? DecodeRecord(*text) : text.status();
    if (!record.ok() || record->first != attempt_.identity ||
        record->second.file.name != attempt_.files[i]) {
      break;
    }
    const auto found = DescribeFile(temporary_, attempt_.files[i]);
    if (!found.ok() || *found != record->second.file) {
      break;
    }
    finished_.push_back(std::move(record->second));
  }
  history_ = finished_.empty()
                 ? fmt::format(
                       "an earlier attempt at {} was of another source or with other options, "
                       "or is damaged: it begins anew",
                       path_)
                 : fmt::format("goes on with an earlier attempt at {}: {} files were finished",
                               path_, finished_.size());
}

Status StagedOutput::Keep(size_t count) {
  finished_.resize(count);
  std::set<std::string> names = {kOutputName};
  std::set<std::string> files;
  for (size_t i = 0; i < count; ++i) {
    names.insert(RecordPath(i).substr(holder_.size() + 1));
    files.insert(finished_[i].file.name);
  }
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(temporary_, error))) {
    names.erase(kOutputName);
  }
  HEDDLE_RETURN_IF_ERROR(
      RemoveOthers(holder_, [&](const std::string& name) { return names.contains(name); }));
  fs::create_directory(temporary_, error);
  if (error) {
    return ErrnoError(error.value(), "create folder " + temporary_);
  }
  return RemoveOthers(temporary_, [&](const std::string& name) { return files.contains(name); });
}

Status StagedOutput::Record(FileRecord file, std::string detail) {
  if (attempt_.identity.empty()) {
    return Status::Ok();
  }
  HEDDLE_RETURN_IF_ERROR(SyncFile(temporary_ + "/" + file.name));
  HEDDLE_RETURN_IF_ERROR(SyncFolder(temporary_));
  finished_.push_back({.file = std::move(file), .detail = std::move(detail)});
  return WriteFileAtomically(RecordPath(finished_.size() - 1),
                             EncodeRecord(attempt_.identity, finished_.back()));
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
