/// \file
/// The part of a worker's vote that its device computes: the sums of squares of its gradients, and
/// its losses.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// The values of a vote, read from the device.
struct VoteStats {
  std::vector<double> sums_of_squares;  ///< By gradient, in the order of the arguments.
  std::vector<double> losses;           ///< In the order of the arguments.
};

/// Computes the sums of squares on `device`, and reads them and the losses in one copy, for which
/// it waits: the only wait of the host for its device in a step. `gradients` are contiguous and of
/// the master type; `losses` have one element each. Errors: the device's. Thread: the
/// one that computes.
Result<VoteStats> ReadVoteStats(Device& device,
                                const std::vector<at::Tensor>& gradients,
                                const std::vector<at::Tensor>& losses);

}  // namespace heddle::runtime
