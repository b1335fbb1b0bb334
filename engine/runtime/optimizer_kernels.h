/// \file
/// Other devices' own forms of adamw.h. Each says whether it has done the work: where it takes no
/// such tensors, or a device has none, the work is done by plain ATen operations.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::runtime {

/// Thread: as for adamw.h.
struct OptimizerKernels {
  /// AdamWUpdate; `copy` may be `master` itself.
  bool (*update)(const at::Tensor& master,
                 const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq,
                 const at::Tensor& gradient,
                 const at::Tensor& copy,
                 const simd::AdamWFactors& factors) = nullptr;
  /// SumSquaresOfBlocks.
  bool (*squares)(const at::Tensor& tensor, const at::Tensor& sums) = nullptr;
};

/// Registers them for tensors on `device`, for the life of the process; at namespace scope.
struct OptimizerRegistration {
  OptimizerRegistration(at::DeviceType device, const OptimizerKernels& kernels);
};

}  // namespace heddle::runtime
