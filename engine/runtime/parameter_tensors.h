/// \file
/// The tensors of a parameter in a ParameterState. Included by engine/runtime only.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/runtime/parameter_state.h"

namespace heddle::runtime {

/// The tensors of the held box of one parameter, contiguous and on the state's device.
struct ParameterState::Held {
  Box box;                ///< The part of the parameter that is held.
  at::Tensor master;      ///< The weights, in the master type (fp32 or fp64).
  at::Tensor exp_avg;     ///< Adam's first moment, in the master type.
  at::Tensor exp_avg_sq;  ///< Adam's second moment, in the master type.
  at::Tensor compute;     ///< The compute copy; the same tensor as `master` if their types agree.
};

}  // namespace heddle::runtime
