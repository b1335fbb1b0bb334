/// \file
/// Kernels execute the operators of a graph on ATen tensors of any libtorch device. Each operator
/// has one kernel, in the file of its name under kernels/; for cards some have a second one, under
/// kernels/cuda/. A kernel is deterministic: the bits of its outputs depend on its inputs, its
/// attributes, its context and the number of threads alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

/// The logical coordinates of a node's execution, from which random numbers (dropout) are derived.
struct KernelContext {
  uint64_t seed = 0;         ///< The job's seed.
  int64_t step = 0;          ///< The number of the step, from 1 on.
  int64_t first_sample = 0;  ///< Number of the microbatch's first sample in the sample order.
};

/// Computes and returns the outputs of `node`. The inputs are contiguous and must not be changed.
/// An output may share an input's storage only where the operator's declaration allows it. Throws
/// libtorch's exceptions. Thread: any, several at once.
using Kernel = std::vector<at::Tensor> (*)(const graph::Node& node,
                                           std::span<const at::Tensor> inputs,
                                           const KernelContext& context);

/// Returns the kernel of the operator named `op` for tensors on `device`: the device's own, or the
/// one of all devices; null: there is none. Thread: any.
Kernel FindKernel(std::string_view op, at::DeviceType device = at::kCPU);

/// Registers a kernel for the life of the process; defined once per kernel, at namespace scope, by
/// HEDDLE_REGISTER_KERNEL. Aborts if the operator has a kernel already. With a device: one of its
/// own, for tensors there.
struct KernelRegistration {
  KernelRegistration(std::string_view op, Kernel kernel);
  KernelRegistration(std::string_view op, at::DeviceType device, Kernel kernel);
};
/// Registers `kernel` as that of the operator whose name is the string literal `op`.
#define HEDDLE_REGISTER_KERNEL(op, kernel)                                  \
  static const ::heddle::runtime::KernelRegistration registration_of_##op { \
#op, kernel                                                             \
  }

}  // namespace heddle::runtime
