#include "checkpoint/store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "checkpoint/file_access.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_index.h"

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
  const Deadline deadline = After(kLockTimeout);
  Mutex mutex;
  CondVar never;
  const MutexLock lock(mutex);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return ErrnoError(errno, "lock " + path);
    }
    if (Now() >= deadline) {
      return UnavailableError("{} is locked by another process for more than {} s", root,
                              Seconds(kLockTimeout));
    }
    // flock() has no timeout and no event to wait for: ask again.
    never.WaitUntil(mutex, After(std::chrono::milliseconds(2)));
  }
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
  // What a dead writer of this generation left is no part of the checkpoint.
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

Result<CommitInfo> CommitLocked(const CommitRequest& request, Manifest manifest) {
  HEDDLE_RETURN_IF_ERROR(FenceLocked(request.root, request.generation));
  const std::string temporary = TemporaryFolderName(request.step, request.generation);
  const std::string folder = request.root + "/" + temporary;
  HEDDLE_RETURN_IF_ERROR(CheckFiles(manifest, folder));
  HEDDLE_ASSIGN_OR_RETURN(FileRecord index, WriteTensorIndex(folder, manifest));
  manifest.files.push_back(std::move(index));
  const std::string text = EncodeManifest(manifest);
  HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(folder + "/" + kManifestName, text));
  const std::string name = StepFolderName(request.step);
  HEDDLE_RETURN_IF_ERROR(Publish(request.root, temporary, name));
  return CommitInfo{.path = request.root + "/" + name,
                    .bytes = manifest.StoredBytes() + static_cast<int64_t>(text.size()),
                    .raw_bytes = manifest.RawBytes()};
}

}  // namespace

Result<Manifest> BuildManifest(const CommitRequest& request) {
  if (request.step < 0 || request.step >= 100'000'000 || request.generation < 0) {
    return InvalidArgumentError("commit of step {} in generation {}", request.step,
                                request.generation);
  }
  Manifest manifest{.step = request.step,
                    .generation = request.generation,
                    .created = WallClockSeconds(),
                    .job = request.job,
                    .files = {},
                    .tensors = {}};
  std::map<std::pair<std::string, std::string>, TensorRecord> tensors;
  for (const TensorInfo& info : request.expected) {
    if (!tensors
             .emplace(std::pair(info.role, info.name),
                      TensorRecord{.info = info, .digest = {}, .boxes = {}})
             .second) {
      return InvalidArgumentError("tensor '{}' ({}) is expected twice", info.name, info.role);
    }
  }
  for (const FilePart& part : request.parts) {
    if (part.step != request.step || part.generation != request.generation) {
      return InvalidArgumentError(
          "file {} is of step {} in generation {}, not of step {} in generation {}", part.file.name,
          part.step, part.generation, request.step, request.generation);
    }
    if (part.file.name == kTensorIndexName) {
      return InvalidArgumentError("file {}: this name belongs to the index of all tensors",
                                  part.file.name);
    }
    for (const FilePart::PartBox& box : part.boxes) {
      const auto tensor = tensors.find({box.tensor.role, box.tensor.name});
      if (tensor == tensors.end() || tensor->second.info != box.tensor) {
        return InvalidArgumentError("file {}: tensor '{}' ({}) of {} {} is not part of the state",
                                    part.file.name, box.tensor.name, box.tensor.role,
                                    DTypeName(box.tensor.dtype), ToString(box.tensor.shape));
      }
      tensor->second.digest += box.record.digest;
      tensor->second.boxes.push_back(box.record);
      tensor->second.boxes.back().file = static_cast<int64_t>(manifest.files.size());
    }
    manifest.files.push_back(part.file);
  }
  for (auto& [key, tensor] : tensors) {
    manifest.tensors.push_back(std::move(tensor));
  }
  manifest.version = NeededVersion(manifest.tensors);
  const Status status = ValidateManifest(manifest);
  if (!status.ok()) {
    return InvalidArgumentError("step {}: {}", request.step, status.message());
  }
  return manifest;
}

Result<CommitInfo> Commit(const CommitRequest& request, metrics::Registry& metrics) {
  Result<CommitInfo> info = InternalError("not committed");
  auto manifest = BuildManifest(request);
  if (manifest.ok()) {
    auto lock = LockRoot(request.root);
    info =
        lock.ok() ? CommitLocked(request, *std::move(manifest)) : Result<CommitInfo>(lock.status());
  } else {
    info = manifest.status();
  }
  const metrics::Labels scope = {{"scope", "checkpoint"}};
  if (!info.ok()) {
    metrics.GetCounter("heddle_checkpoint_failures_total", "Saves that failed.", scope).Add();
    return info.status().WithContext("checkpoint of step {}", request.step);
  }
  metrics.GetGauge("heddle_checkpoint_bytes", "Stored bytes of the newest save.", scope)
      .Set(static_cast<double>(info->bytes));
  metrics
      .GetGauge("heddle_checkpoint_last_success_timestamp_seconds",
                "When the newest checkpoint was committed.")
      .Set(WallClockSeconds());
  return info;
}

Status Fence(const std::string& root, int64_t generation) {
  HEDDLE_RETURN_IF_ERROR(MakeFolders(root));
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd lock, LockRoot(root));
  return FenceLocked(root, generation);
}

Status Abandon(const std::string& root, int64_t step, int64_t generation) {
  return RemoveTree(root + "/" + TemporaryFolderName(step, generation));
}

Result<int> CleanOrphans(const std::string& root, std::optional<int64_t> live_generation) {
  HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(root));
  int removed = 0;
  for (const std::string& name : names) {
    const auto generation = ParseTemporaryFolderName(name);
    const bool dead = generation && (!live_generation || *generation < *live_generation);
    const bool unfinished = name.starts_with(".step-");  // A first state from a model's weights.
    if (dead || unfinished || name.starts_with(".trash-")) {
      HEDDLE_RETURN_IF_ERROR(RemoveTree(root + "/" + name));
      ++removed;
    }
  }
  return removed;
}

Result<std::vector<Entry>> List(const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const auto names, Names(root));
  std::vector<Entry> entries;
  for (const std::string& name : names) {
    if (const auto step = ParseStepFolderName(name)) {
      entries.push_back({.step = *step, .path = root + "/" + name});
    }
  }
  return entries;
}

Result<Entry> FindNewestSound(const std::string& root,
                              const std::function<void(const std::string&)>& skipped) {
  HEDDLE_ASSIGN_OR_RETURN(auto entries, List(root));
  std::reverse(entries.begin(), entries.end());
  for (const Entry& entry : entries) {
    auto reader = Reader::Open(entry.path);
    const Status status = reader.ok() ? (*reader)->CheckFileHashes() : reader.status();
    if (status.ok()) {
      return entry;
    }
    skipped(fmt::format("checkpoint {} is skipped: {}", entry.path, status.message()));
  }
  return NotFoundError("{}: no sound checkpoint among {}", root, entries.size());
}

Result<std::vector<int64_t>> ChoosePruned(const std::string& root,
                                          const RetentionOptions& options) {
  if (options.keep_last < 1) {
    return InvalidArgumentError("keep {} checkpoints: at least one is kept", options.keep_last);
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto entries, List(root));
  std::vector<RetentionCandidate> candidates;
  for (const Entry& entry : entries) {
    candidates.push_back({.step = entry.step, .loss = {}});
    if (options.keep_best) {  // A manifest that cannot be read tells no loss.
      const auto manifest = LoadManifest(entry.path);
      candidates.back().loss = manifest.ok() ? ValidationLoss(manifest->job) : std::nullopt;
    }
  }
  std::vector<int64_t> leaving = StepsToRemove(candidates, options);
  if (leaving.empty()) {
    return leaving;
  }
  int64_t sound = options.sound_step;
  if (sound < 0) {
    HEDDLE_ASSIGN_OR_RETURN(const Entry newest,
                            FindNewestSound(root, [](const std::string& /*line*/) {}));
    sound = newest.step;
  }
  std::erase(leaving, sound);
  return leaving;
}

Result<std::vector<int64_t>> Prune(const std::string& root, const RetentionOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(auto leaving, ChoosePruned(root, options));
  for (const int64_t step : leaving) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string trash, MoveAside(root, StepFolderName(step)));
    HEDDLE_RETURN_IF_ERROR(SyncFolder(root));
    HEDDLE_RETURN_IF_ERROR(RemoveTree(trash));
  }
  return leaving;
}

Status NoteValidationLoss(const std::string& root, int64_t step, double loss) {
  const std::string folder = root + "/" + StepFolderName(step);
  if (!FileExists(folder)) {
    return NotFoundError("{}: no such checkpoint", folder);
  }
  HEDDLE_ASSIGN_OR_RETURN(const UniqueFd lock, LockRoot(root));
  HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, LoadManifest(folder));
  HEDDLE_RETURN_IF_ERROR(SetValidationLoss(manifest.job, loss).WithContext("{}", folder));
  return WriteFileAtomically(folder + "/" + kManifestName, EncodeManifest(manifest));
}

}  // namespace heddle::checkpoint
