/// \file
/// Chooses the checkpoints of a folder that are kept. Pure; checkpoint/store/store.h removes the
/// others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The retention rules. A checkpoint is kept if any rule keeps it.
struct RetentionOptions {
  int64_t keep_last = 3;                      ///< Number of newest ones to keep; at least 1.
  int64_t keep_every = 0;                     ///< Keep steps that are multiples of it; 0: none.
  bool keep_best = false;                     ///< Keep the one with the least validation loss.
  std::vector<int64_t> protected_steps = {};  ///< Keep these, such as the one resumed from.
  /// A step that is known to be sound (just committed); -1: the files are read to find one.
  int64_t sound_step = -1;
};

struct RetentionCandidate {
  int64_t step = 0;
  std::optional<double> loss = {};  ///< Loss of the validation after the step, if there was one.
};

/// The steps that no rule keeps, ascending; `sound_step` is not one of the rules. Of equal losses
/// the newer checkpoint is the best. `candidates` ascend by step.
std::vector<int64_t> StepsToRemove(std::span<const RetentionCandidate> candidates,
                                   const RetentionOptions& options);

}  // namespace heddle::checkpoint
