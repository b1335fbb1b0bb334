/// \file
/// The tensors of a parameter in a ParameterState. Included by engine/runtime only.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/runtime/parameter_state.h"

namespace heddle::runtime {

/// A part of a parameter whose optimizer state is kept.
struct ParameterState::Kept {
  Box box;                ///< The part.
  at::Tensor master;      ///< The weights, in the master type (fp32 or fp64).
  at::Tensor exp_avg;     ///< Adam's first moment, in the master type.
  at::Tensor exp_avg_sq;  ///< Adam's second moment, in the master type.
  at::Tensor compute;     ///< The compute copy; the same memory as `master` if their types agree.
};

/// What is held of one parameter, on the state's device.
struct ParameterState::Held {
  Box box;                      ///< The part of the parameter that is held.
  at::Tensor compute;           ///< The compute copy of all of it, contiguous.
  std::vector<Kept> kept = {};  ///< Disjoint; none where other workers keep all.
};

}  // namespace heddle::runtime
