/// \file
/// How an operator runs: one kernel a file under kernels/, of the operator's name, on ATen tensors
/// of any libtorch device. A kernel is deterministic: its bits depend on its inputs, its attributes
/// and the number of threads only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

/// Logical coordinates of a node's execution, for randomness (dropout).
struct KernelContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;  ///< Number of the microbatch's first sample in the sample order.
};

/// Computes the node's outputs. Inputs are contiguous and must not be changed; an output may share
/// an input's storage only where the operator says so.
using Kernel = std::vector<at::Tensor> (*)(const graph::Node& node,
                                           std::span<const at::Tensor> inputs,
                                           const KernelContext& context);

/// nullptr when there is none.
Kernel FindKernel(std::string_view op);

struct KernelRegistration {
  KernelRegistration(std::string_view op, Kernel kernel);
};
#define HEDDLE_REGISTER_KERNEL(op, kernel)                                  \
  static const ::heddle::runtime::KernelRegistration registration_of_##op { \
#op, kernel                                                             \
  }

}  // namespace heddle::runtime
