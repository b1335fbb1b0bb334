/// \file
/// Which checkpoints of a folder stay. Pure; checkpoint/store/store.h removes the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// A checkpoint stays when any of these says so.
struct RetentionOptions {
  int64_t keep_last = 3;                      ///< The newest ones; at least 1.
  int64_t keep_every = 0;                     ///< Those whose step it divides; 0: none.
  bool keep_best = false;                     ///< The one with the least validation loss.
  std::vector<int64_t> protected_steps = {};  ///< For example the one a run resumed from.
  /// A step known to be sound (just committed); -1 asks the files, which reads them.
  int64_t sound_step = -1;
};

struct RetentionCandidate {
  int64_t step = 0;
  std::optional<double> loss = {};  ///< Of the validation after the step, when there was one.
};

/// The steps that go by the rules, ascending; `sound_step` is not one of the rules. Of equal losses
/// the newer is the best. `candidates` ascend by step.
std::vector<int64_t> StepsToRemove(std::span<const RetentionCandidate> candidates,
                                   const RetentionOptions& options);

/// The validation loss in a checkpoint's `extra`: {"validation_loss": 2.31}. None when it has none.
std::optional<double> ValidationLoss(const JobState& job);

/// The fingerprint of the data that the state was trained on, in `extra`: {"data":
/// "00f1e2d3c4b5a697"}. 0 when it does not say.
uint64_t DataFingerprint(const JobState& job);

/// Puts it there, beside what `extra` holds; 0 is left out. Errors: as SetValidationLoss.
Status SetDataFingerprint(JobState& job, uint64_t fingerprint);

/// Puts it there, beside what `extra` holds. One that is not finite is left out. Errors:
/// kInvalidArgument when `extra` is not a JSON object.
Status SetValidationLoss(JobState& job, double loss);

}  // namespace heddle::checkpoint
