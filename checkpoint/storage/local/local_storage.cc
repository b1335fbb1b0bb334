/// \file
/// Checkpoints in a folder of a local or shared file system: any path.
///
/// ROOT/step-00000040/              a committed checkpoint: MANIFEST.json, one .h5 a writer and
///                                  tensors.h5, which shows them as whole tensors
/// ROOT/.tmp-step-00000080.g3/      a save in progress in generation 3, or one that was given up
/// ROOT/.trash-…                    a checkpoint on its way out
/// ROOT/.generation                 the newest generation that is known here
///
/// The commit is the rename of the temporary folder, after every byte of it is on storage.
/// Processes exclude each other by a lock of the folder: kUnavailable when another one holds it.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/file.h"
#include "base/system/file_lock.h"
#include "base/system/unique_fd.h"
#include "checkpoint/files/tensor_index.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

namespace {

constexpr const char* kLockName = ".lock";
constexpr const char* kGenerationName = ".generation";
constexpr Duration kLockTimeout = std::chrono::seconds(10);

/// The exclusive lock of a root, between processes and threads; the kernel frees it with the
/// process.
Result<UniqueFd> LockRoot(const std::string& root) {
  const std::string path = root + "/" + kLockName;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoError(errno, "open " + path);
  }
  HEDDLE_RETURN_IF_ERROR(LockWithin(fd, root, kLockTimeout));
  return fd;
}

Result<int64_t> KnownGeneration(const std::string& root) {
  const auto text = ReadFile(root + "/" + kGenerationName, 64);
  if (text.status().code() == StatusCode::kNotFound) {
    return int64_t{-1};
  }
  HEDDLE_RETURN_IF_ERROR(text.status());
  int64_t generation = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), generation);
  if (error != std::errc() || end == text->data()) {
    return DataLossError("{}/{}: not a number", root, kGenerationName);
  }
  return generation;
}

Status FenceLocked(const std::string& root, int64_t generation) {
  HEDDLE_ASSIGN_OR_RETURN(const int64_t known, KnownGeneration(root));
  if (generation < known) {
    return AbortedError("generation {} is over: {} is known in {}", generation, known, root);
  }
  return generation == known
             ? Status::Ok()
             : WriteFileAtomically(root + "/" + kGenerationName, fmt::format("{}\n", generation));
}

Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? ErrnoError(error.value(), "remove " + path) : Status::Ok();
}

/// Names in a folder; none when it does not exist.
Result<std::vector<std::string>> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return ErrnoError(error.value(), "list " + folder);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A committed checkpoint is renamed away before its files go, so that no reader sees half of it.
/// Returns where it is.
Result<std::string> MoveAside(const std::string& root, const std::string& name) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::string trash = fmt::format("{}/.trash-{}.{}", root, name, attempt);
    if (::renameat2(AT_FDCWD, (root + "/" + name).c_str(), AT_FDCWD, trash.c_str(),
                    RENAME_NOREPLACE) == 0) {
      return trash;
    }
    if (errno != EEXIST) {
      return ErrnoError(errno, "rename " + root + "/" + name);
    }
  }
  return ResourceExhaustedError("{}: too much trash", root);
}

Status CheckFiles(const Manifest& manifest, const std::string& folder) {
  std::set<std::string> listed;
  for (const FileRecord& file : manifest.files) {
    listed.insert(file.name);
    const auto opened = OpenRegularFile(folder + "/" + file.name);
    if (!opened.ok() || (*opened)->bytes() != file.bytes) {
      return DataLossError(
          "{}/{}: {}", folder, file.name,
          opened.ok() ? fmt::format("{} bytes, {} reported", (*opened)->bytes(), file.bytes)
                      : opened.status().message());
    }
  }
  // Files that a dead writer of this generation left are no part of the checkpoint.
  HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(folder));
  for (const std::string& name : names) {
    if (!listed.contains(name)) {
      HEDDLE_RETURN_IF_ERROR(RemoveTree(folder + "/" + name));
    }
  }
  return Status::Ok();
}

/// The rename that commits. An older checkpoint of the step is exchanged in the same rename; where
/// the file system cannot exchange it is moved aside first, and back when the rename fails.
Status Publish(const std::string& root, const std::string& temporary, const std::string& name) {
  const std::string from = root + "/" + temporary;
  const std::string to = root + "/" + name;
  std::string old = from;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    old.clear();
    if (errno != ENOENT && FileExists(to)) {
      HEDDLE_ASSIGN_OR_RETURN(old, MoveAside(root, name));
    }
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const Status status = ErrnoError(errno, "rename " + from + " to " + to);
      if (!old.empty() && ::rename(old.c_str(), to.c_str()) != 0) {
        return status.WithContext("the checkpoint before is in {}", old);
      }
      return status;
    }
  }
  HEDDLE_RETURN_IF_ERROR(SyncFolder(root));
  if (!old.empty()) {
    RemoveTree(old).IgnoreError("committed; CleanOrphans removes what is left");
  }
  return Status::Ok();
}

class LocalStorage : public Storage {
 public:
  explicit LocalStorage(std::string root) : root_(std::move(root)) {}

  Status Prepare() override { return MakeFolders(root_); }

  std::string SaveFolder(int64_t step, int64_t generation) const override {
    return root_ + "/" + TemporaryFolderName(step, generation);
  }

  Status Persist(int64_t step,
                 int64_t generation,
                 const FileRecord& /*file*/,
                 const Cancelled& /*cancelled*/) const override {
    return SyncFolder(SaveFolder(step, generation));
  }

  Result<int64_t> Commit(Manifest manifest) const override {
    HEDDLE_ASSIGN_OR_RETURN(const UniqueFd lock, LockRoot(root_));
    HEDDLE_RETURN_IF_ERROR(FenceLocked(root_, manifest.generation));
    const std::string temporary = TemporaryFolderName(manifest.step, manifest.generation);
    const std::string folder = root_ + "/" + temporary;
    HEDDLE_RETURN_IF_ERROR(CheckFiles(manifest, folder));
    HEDDLE_ASSIGN_OR_RETURN(FileRecord index, WriteTensorIndex(folder, manifest));
    manifest.files.push_back(std::move(index));
    const std::string text = EncodeManifest(manifest);
    HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(folder + "/" + kManifestName, text));
    HEDDLE_RETURN_IF_ERROR(Publish(root_, temporary, StepFolderName(manifest.step)));
    return manifest.StoredBytes() + static_cast<int64_t>(text.size());
  }

  Status Fence(int64_t generation) const override {
    HEDDLE_RETURN_IF_ERROR(MakeFolders(root_));
    HEDDLE_ASSIGN_OR_RETURN(const UniqueFd lock, LockRoot(root_));
    return FenceLocked(root_, generation);
  }

  Result<int64_t> HighestGeneration() const override {
    HEDDLE_ASSIGN_OR_RETURN(int64_t highest, KnownGeneration(root_));
    HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(root_));
    for (const std::string& name : names) {
      highest = std::max(highest, ParseTemporaryFolderName(name).value_or(-1));
      if (ParseStepFolderName(name)) {
        HEDDLE_ASSIGN_OR_RETURN(const auto files, Names(root_ + "/" + name));
        for (const std::string& file : files) {
          highest = std::max(highest, GenerationOfFile(file).value_or(-1));
        }
      }
    }
    return highest;
  }

  Result<std::vector<int64_t>> Steps() const override {
    HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(root_));
    std::vector<int64_t> steps;
    for (const std::string& name : names) {
      if (const auto step = ParseStepFolderName(name)) {
        steps.push_back(*step);
      }
    }
    return steps;
  }

  Status ChangeManifest(int64_t step,
                        const std::function<Status(Manifest&)>& change) const override {
    const std::string folder = root_ + "/" + StepFolderName(step);
    if (!FileExists(folder)) {
      return NotFoundError("{}: no such checkpoint", folder);
    }
    HEDDLE_ASSIGN_OR_RETURN(const UniqueFd lock, LockRoot(root_));
    HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, LoadManifest(folder));
    HEDDLE_RETURN_IF_ERROR(change(manifest).WithContext("{}", folder));
    return WriteFileAtomically(folder + "/" + kManifestName, EncodeManifest(manifest));
  }

  Status Remove(int64_t step) const override {
    HEDDLE_ASSIGN_OR_RETURN(const std::string trash, MoveAside(root_, StepFolderName(step)));
    HEDDLE_RETURN_IF_ERROR(SyncFolder(root_));
    return RemoveTree(trash);
  }

  Status Abandon(int64_t step, int64_t generation) const override {
    return RemoveTree(SaveFolder(step, generation));
  }

  Result<int> CleanOrphans(std::optional<int64_t> live_generation) const override {
    HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(root_));
    int removed = 0;
    for (const std::string& name : names) {
      const auto generation = ParseTemporaryFolderName(name);
      const bool dead = generation && (!live_generation || *generation < *live_generation);
      const bool unfinished = name.starts_with(".step-");  // A first state from a model's weights.
      if (dead || unfinished || name.starts_with(".trash-")) {
        HEDDLE_RETURN_IF_ERROR(RemoveTree(root_ + "/" + name));
        ++removed;
      }
    }
    return removed;
  }

 private:
  const std::string root_;
};

Result<std::unique_ptr<Storage>> OpenLocalStorage(const std::string& root) {
  return std::unique_ptr<Storage>(std::make_unique<LocalStorage>(root));
}

const StorageRegistration kLocal{{.scheme = "",
                                  .place = "in paths",
                                  .open_storage = OpenLocalStorage,
                                  .open_file = OpenRegularFile}};

}  // namespace

}  // namespace heddle::checkpoint
