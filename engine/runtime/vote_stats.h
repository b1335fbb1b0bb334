/// \file
/// What a worker contributes to a vote out of its device: the squares of its gradients and its
/// losses.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

struct VoteStats {
  std::vector<double> sums_of_squares;  ///< Of each gradient.
  std::vector<double> losses;
};

/// Reads all of them together: the one time in a step that the host waits for its device.
/// `gradients` are contiguous and of the master type, `losses` have one element each.
/// Errors: the device's.
Result<VoteStats> ReadVoteStats(Device& device,
                                const std::vector<at::Tensor>& gradients,
                                const std::vector<at::Tensor>& losses);

}  // namespace heddle::runtime
