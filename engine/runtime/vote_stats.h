/// \file
/// The part of a worker's vote that its device computes: the sums of squares of its gradients, and
/// its losses.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/program/program.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// A slice of a gradient, whose norm is summed apart (engine/program/slices.h), so that it has the same
/// bits whoever keeps which slices.
struct NormSlice {
  graph::ParameterId parameter = -1;
  int64_t leaf = 0;     ///< Its number among the parameter's (VoteRecord::Norm).
  at::Tensor gradient;  ///< A view, contiguous.
};

/// Adds the slices of `gradient`, that of what the worker of `program` keeps of the piece of `norm`.
/// Thread: any.
void AddNormSlices(const graph::Graph& graph,
                   const program::Program& program,
                   const program::VoteShare::Norm& norm,
                   const at::Tensor& gradient,
                   std::vector<NormSlice>& slices);

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
