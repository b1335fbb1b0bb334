#include "checkpoint/store/store.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "checkpoint/files/tensor_index.h"
#include "checkpoint/format/extra.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"

namespace heddle::checkpoint {

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
  const Status status = ValidateManifest(manifest);
  if (!status.ok()) {
    return InvalidArgumentError("step {}: {}", request.step, status.message());
  }
  return manifest;
}

namespace {

const metrics::Labels kScope = {{"scope", "checkpoint"}};

metrics::Gauge& CommittedBytes(metrics::Registry& metrics) {
  return metrics.GetGauge("heddle_checkpoint_bytes", "Stored bytes of the newest save.", kScope);
}
metrics::Gauge& CommittedAt(metrics::Registry& metrics) {
  return metrics.GetGauge("heddle_checkpoint_last_success_timestamp_seconds",
                          "When the newest checkpoint was committed.");
}

Result<CommitInfo> CommitParts(const CommitRequest& request) {
  HEDDLE_ASSIGN_OR_RETURN(Manifest manifest, BuildManifest(request));
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(request.root));
  CommitInfo info{.path = JoinPath(request.root, StepFolderName(request.step)),
                  .raw_bytes = manifest.RawBytes()};
  HEDDLE_ASSIGN_OR_RETURN(info.bytes, storage->Commit(std::move(manifest)));
  return info;
}

}  // namespace

metrics::Counter& CommitFailures(metrics::Registry& metrics) {
  return metrics.GetCounter("heddle_checkpoint_failures_total", "Saves that failed.", kScope);
}

void ForgetCommits(metrics::Registry& metrics) {
  CommittedBytes(metrics).Clear();
  CommittedAt(metrics).Clear();
}

Result<CommitInfo> Commit(const CommitRequest& request, metrics::Registry& metrics) {
  auto info = CommitParts(request);
  if (!info.ok()) {
    CommitFailures(metrics).Add();
    return info.status().WithContext("checkpoint of step {}", request.step);
  }
  CommittedBytes(metrics).Set(static_cast<double>(info->bytes));
  CommittedAt(metrics).Set(WallClockSeconds());
  return info;
}

Status Fence(const std::string& root, int64_t generation) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  return storage->Fence(generation);
}

Result<int64_t> HighestGeneration(const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  return storage->HighestGeneration();
}

Status Abandon(const std::string& root, int64_t step, int64_t generation) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  return storage->Abandon(step, generation);
}

Result<int> CleanOrphans(const std::string& root, std::optional<int64_t> live_generation) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  return storage->CleanOrphans(live_generation);
}

Result<std::vector<Entry>> List(const std::string& root) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  HEDDLE_ASSIGN_OR_RETURN(const auto steps, storage->Steps());
  std::vector<Entry> entries;
  entries.reserve(steps.size());
  for (const int64_t step : steps) {
    entries.push_back({.step = step, .path = JoinPath(root, StepFolderName(step))});
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
    if (IsUnreachable(status)) {
      return status;  // What could not be asked for may be sound.
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
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  for (const int64_t step : leaving) {
    HEDDLE_RETURN_IF_ERROR(storage->Remove(step));
  }
  return leaving;
}

Status NoteValidationLoss(const std::string& root, int64_t step, double loss) {
  HEDDLE_ASSIGN_OR_RETURN(const auto storage, OpenStorage(root));
  return storage->ChangeManifest(
      step, [&](Manifest& manifest) { return SetValidationLoss(manifest.job, loss); });
}

}  // namespace heddle::checkpoint
