/// \file
/// A job's checkpoints as a whole: committing, fencing, listing, cleaning, keeping. Where they lie,
/// a root's path or URL, and how a commit is made there, is checkpoint/storage/storage.h's.
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
  /// The whole state: every tensor here is covered exactly once by the parts, and there is no
  /// other.
  std::vector<TensorInfo> expected;
  std::vector<FilePart> parts;
};

struct CommitInfo {
  std::string path;
  int64_t bytes = 0;      ///< Stored, the manifest included.
  int64_t raw_bytes = 0;  ///< Of the tensors.
};

/// The manifest of a save. Pure. Errors: kInvalidArgument when the parts do not fit together or do
/// not cover the expected tensors exactly once.
Result<Manifest> BuildManifest(const CommitRequest& request);

/// Makes the checkpoint exist. A committed checkpoint of the same step is replaced at once.
/// After an error the checkpoints before are as they were. Records heddle_checkpoint_* of the
/// whole. Errors: kInvalidArgument  as BuildManifest
///         kAborted          a newer generation is known here
///         kDataLoss         a reported file is missing or has another size
///         kUnavailable      another process holds the lock of the folder; no answer of the store
///         and those of the storage (kResourceExhausted when it is full).
/// Thread: any.
Result<CommitInfo> Commit(const CommitRequest& request, metrics::Registry& metrics);

/// From now on no generation below `generation` can commit here. Errors: kAborted when a newer one
/// is known.
Status Fence(const std::string& root, int64_t generation);

/// The highest generation that anything here is of: the fence, checkpoints, what saves left. One
/// that is to commit here is above it. -1: a root without any, or that does not exist.
Result<int64_t> HighestGeneration(const std::string& root);

/// Removes what a save of this step and generation left; nothing there is fine.
Status Abandon(const std::string& root, int64_t step, int64_t generation);

/// How many commits failed; there from the first call on.
metrics::Counter& CommitFailures(metrics::Registry& metrics);
/// What the metrics show of the newest commit is of a job that is over.
void ForgetCommits(metrics::Registry& metrics);

/// Removes what saves of generations below `live_generation` (of all, without one) left, and
/// trash. Call at start. Returns how many entries went. A root that does not exist is fine.
Result<int> CleanOrphans(const std::string& root,
                         std::optional<int64_t> live_generation = std::nullopt);

struct Entry {
  int64_t step = 0;
  std::string path;
};
/// The committed checkpoints, oldest first, by their names alone. A root that does not exist has
/// none.
Result<std::vector<Entry>> List(const std::string& root);

/// The newest checkpoint whose manifest is sound and whose files have their sizes and hashes,
/// whole. Each one that is skipped is given to `skipped` as one line naming the file. Errors:
/// kNotFound when there is none; those of a store that cannot be reached.
Result<Entry> FindNewestSound(const std::string& root,
                              const std::function<void(const std::string&)>& skipped);

/// The steps that Prune would remove. Errors: as Prune.
Result<std::vector<int64_t>> ChoosePruned(const std::string& root, const RetentionOptions& options);

/// Removes the checkpoints that nothing in `options` keeps, but never the newest sound one. Returns
/// the steps that went. Errors: kInvalidArgument, kNotFound when no checkpoint is sound (nothing is
/// removed).
Result<std::vector<int64_t>> Prune(const std::string& root, const RetentionOptions& options);

/// Adds the loss of the validation after `step` to that committed checkpoint, for a validation that
/// ended after the commit: its manifest is replaced at once. Errors: kNotFound, kDataLoss,
/// kUnavailable when another process holds the lock, those of the storage.
Status NoteValidationLoss(const std::string& root, int64_t step, double loss);

}  // namespace heddle::checkpoint
