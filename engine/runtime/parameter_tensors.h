/// \file
/// The tensors behind ParameterState: for the files of engine/runtime only.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/runtime/parameter_state.h"

namespace heddle::runtime {

struct ParameterState::Held {
  at::Tensor master;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor compute;  ///< The same tensor as master when the element types agree.
};

}  // namespace heddle::runtime
