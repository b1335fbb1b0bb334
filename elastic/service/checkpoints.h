/// \file
/// The coordinator's part in checkpoints: it commits what workers wrote, prunes old checkpoints,
/// and finds those that a run can resume from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/actions.h"
#include "elastic/control/events.h"
#include "engine/job/job.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// Commits a checkpoint whose parts cover the whole state, then prunes old ones. Errors are in the
/// returned status. Thread: the commit thread.
CheckpointCommitted CommitParts(const Job& job,
                                const CommitCheckpoint& commit,
                                metrics::Registry& registry);

/// Adds a validation loss to the committed checkpoint of its step, for a validation that ended
/// after the commit; then prunes, and returns the steps of the removed checkpoints. Errors:
/// kNotFound (no such checkpoint), those of checkpoint/store/store.h. Thread: the commit thread.
Result<std::vector<int64_t>> NoteLoss(const Job& job, const NoteValidation& note);

/// OK if the job names no checkpoint to begin from, or can begin from it with this output folder.
/// Writes nothing, so that a refused job leaves nothing behind. Errors: kInvalidArgument.
Status CheckNamedCheckpoint(const job::JobConfig& config, const std::string& output);

/// Whether SoundCheckpoints reads the newest checkpoint in full. While workers hold the state,
/// reading would only delay their adoption: if the checkpoint is needed later and turns out to be
/// damaged, the next best source is taken.
enum class ReadNewest : uint8_t { kWhole, kNot };

/// The fingerprint of the data that the checkpoint of `step` was trained on, if its job has the
/// same data section as `config`. 0 if the sections differ, or the checkpoint has no fingerprint.
uint64_t DataOf(const job::JobConfig& config, const std::string& root, int64_t step);

/// The provenance of the state in the checkpoint at `path`. Of unknown guarantee if it cannot be
/// read, or was written by a build that did not record it; after step 0 nothing has been computed.
Provenance ProvenanceOf(const std::string& path);

/// Sets what the job takes over from its checkpoint of `step`: the data's fingerprint, and where the
/// bits of the state come from. `stored`: a coordinator goes on with the job, which was checked
/// when it was submitted. Errors: those of CheckDemand.
Status GoOnFrom(int64_t step, const job::JobConfig& config, bool stored, Job& job);

/// OK if a job of this policy that goes on from the checkpoint at `path` can keep the guarantee that
/// it demands. Errors: kInvalidArgument, with what voids it.
Status CheckDemand(const JobPolicy& policy, const std::string& path);

/// OK if `root` has no checkpoint, or DataOf the newest one is 0 or `fingerprint`. Errors:
/// kInvalidArgument naming both fingerprints; those of the storage.
Status CheckTrainedOn(uint64_t fingerprint, const job::JobConfig& config, const std::string& root);

/// The steps of the checkpoints that a run may resume from, ascending; empty for a new job. Only
/// the newest sound one is read in full (see ReadNewest); `skipped` gets a line for each damaged
/// one. Before that, imports a checkpoint that the job names to resume from, and removes the files
/// of saves that were never committed: those of generations below `live_generation`, whose workers
/// may still be saving, or all of them if it is nullopt.
/// Errors: kInvalidArgument (there are checkpoints, but none is sound; the newest sound one is of a
/// step after the job's last; the named one cannot be resumed from), those of the storage.
Result<std::vector<int64_t>> SoundCheckpoints(
    const Job& job,
    std::optional<int64_t> live_generation,
    ReadNewest read_newest,
    const std::function<void(const std::string&)>& skipped);

}  // namespace heddle::elastic
