/// \file
/// Operations on a job's checkpoints: committing, fencing, listing, cleaning and retention. A root
/// is a path or URL; checkpoint/storage/storage.h implements the operations of each kind of
/// storage.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"
#include "checkpoint/store/retention.h"
#include "metrics/registry.h"

namespace heddle::checkpoint {

struct CommitRequest {
  std::string root;
  int64_t step = 0;
  int64_t generation = 0;
  JobState job;
  /// All tensors of the state. The parts cover each of them exactly once, and no other tensor.
  std::vector<TensorInfo> expected;
  std::vector<FilePart> parts;
};

struct CommitInfo {
  std::string path;
  int64_t bytes = 0;      ///< Stored bytes, including the manifest.
  int64_t raw_bytes = 0;  ///< Bytes of the tensors.
};

/// The manifest of a save. Pure. Errors: kInvalidArgument (the parts do not fit together or do not
/// cover the expected tensors exactly once).
Result<Manifest> BuildManifest(const CommitRequest& request);

/// Commits the checkpoint; a committed checkpoint of the same step is replaced atomically. After an
/// error the earlier checkpoints are unchanged. Records the metrics heddle_checkpoint_* of the
/// whole checkpoint.
/// Errors: kInvalidArgument  see BuildManifest
///         kAborted          a newer generation is known here
///         kDataLoss         a reported file is missing or has another size
///         kUnavailable      another process holds the lock of the folder; no answer of the store
///         and those of the storage (kResourceExhausted when it is full).
/// Thread: any.
Result<CommitInfo> Commit(const CommitRequest& request, metrics::Registry& metrics);

/// Refuses commits of generations below `generation` from now on. Errors: kAborted (a newer
/// generation is known).
Status Fence(const std::string& root, int64_t generation);

/// The highest generation of the fence, of checkpoints and of remains of saves. A generation that
/// is to commit here must be above it. -1: the root has none or does not exist.
Result<int64_t> HighestGeneration(const std::string& root);

/// Removes the remains of a save of this step and generation; it is no error if there are none.
Status Abandon(const std::string& root, int64_t step, int64_t generation);

/// The counter of failed commits; it is exported from the first call on.
metrics::Counter& CommitFailures(metrics::Registry& metrics);
/// Resets the metrics of the newest commit when its job is over.
void ForgetCommits(metrics::Registry& metrics);

/// Removes the remains of saves of generations below `live_generation` (without one: of all saves),
/// and trash. Called at start. Returns the number of entries removed. It is no error if the root
/// does not exist.
Result<int> CleanOrphans(const std::string& root,
                         std::optional<int64_t> live_generation = std::nullopt);

struct Entry {
  int64_t step = 0;
  std::string path;
};
/// The committed checkpoints, oldest first, by their names, without reading them. A root that does
/// not exist has none.
Result<std::vector<Entry>> List(const std::string& root);

/// The newest checkpoint whose manifest is sound and whose files have the sizes and hashes in it.
/// For each checkpoint that is skipped, `skipped` is called with a line naming the file. Errors:
/// kNotFound (there is none); those of a store that cannot be reached.
Result<Entry> FindNewestSound(const std::string& root,
                              const std::function<void(const std::string&)>& skipped);

/// The steps that Prune would remove. Errors: those of Prune.
Result<std::vector<int64_t>> ChoosePruned(const std::string& root, const RetentionOptions& options);

/// Removes the checkpoints that no rule of `options` keeps, but never the newest sound one. Returns
/// the removed steps. Errors: kInvalidArgument, kNotFound (no checkpoint is sound; nothing is
/// removed).
Result<std::vector<int64_t>> Prune(const std::string& root, const RetentionOptions& options);

/// Stores the loss of the validation after `step` in that committed checkpoint, for a validation
/// that ended after the commit; the manifest is replaced atomically. Errors: kNotFound, kDataLoss,
/// kUnavailable (another process holds the lock), those of the storage.
Status NoteValidationLoss(const std::string& root, int64_t step, double loss);

}  // namespace heddle::checkpoint
