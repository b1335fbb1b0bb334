/// \file
/// The coordinator's side of checkpoints: commits what workers wrote, keeps the newest, finds what
/// can be resumed.
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

/// Checks that the parts cover the whole state, commits, prunes. Thread: the commit thread.
CheckpointCommitted CommitParts(const Job& job,
                                const CommitCheckpoint& commit,
                                metrics::Registry& registry);

/// The loss of a validation that ended after its checkpoint was committed goes to that checkpoint;
/// prunes, and returns the steps that went. Errors: kNotFound when there is none; those of
/// checkpoint/store/store.h. Thread: the commit thread.
Result<std::vector<int64_t>> NoteLoss(const Job& job, const NoteValidation& note);

/// Whether a job with this output folder can begin from the checkpoint that it names, if it does;
/// writes nothing, so that a refused job leaves nothing behind. Errors: kInvalidArgument.
Status CheckNamedCheckpoint(const job::JobConfig& config, const std::string& output);

/// Whether the newest checkpoint is read before it is counted on. Where workers hold the state it
/// would only hold up their adoption: should it ever be needed, whoever reads it finds the damage,
/// and the next best source is taken.
enum class ReadNewest : uint8_t { kWhole, kNot };

/// The fingerprint of the data that the checkpoint of `step` was trained on, where its job names
/// the same data as `config`, whose bytes have to be the same then; else, or where it does not say,
/// 0.
uint64_t DataOf(const job::JobConfig& config, const std::string& root, int64_t step);

/// Whether the newest checkpoint in `root`, if there is one, was trained on the data with this
/// fingerprint. Errors: kInvalidArgument with both; those of the storage.
Status CheckTrainedOn(uint64_t fingerprint, const job::JobConfig& config, const std::string& root);

/// Steps of sound checkpoints, ascending, as a run may resume from them. Each damaged one costs a
/// line. Removes what dead saves left: those of generations below `live_generation`, whose workers
/// may be saving while their coordinator was away; all of them without one. None at all: the job is
/// new. A checkpoint that the job names to resume from is brought in before.
/// Errors: kInvalidArgument when there are checkpoints, but none is sound; when the newest sound
/// one is of a step after the job's last; when the named one cannot be resumed from.
Result<std::vector<int64_t>> SoundCheckpoints(
    const Job& job,
    std::optional<int64_t> live_generation,
    ReadNewest read_newest,
    const std::function<void(const std::string&)>& skipped);

}  // namespace heddle::elastic
