/// \file
/// What most kernels share: the type that they compute in, views, and the choice between the CPU's
/// own loops (simd/) and plain ATen operations, which run on every libtorch device.
///
/// Words: "narrow" is the compute type (fp32, bf16, fp64); "wide" is the type of norms, softmax,
/// loss and weight gradients: fp64 for fp64, otherwise fp32, which is the master type.
#pragma once

#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "engine/graph/graph.h"
#include "engine/runtime/kernel.h"

namespace heddle::runtime {

using Tensors = std::vector<at::Tensor>;
using Inputs = std::span<const at::Tensor>;

/// fp64 for fp64, otherwise fp32.
inline at::ScalarType WideType(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The tensor in its wide type; itself when it has it already.
inline at::Tensor Widen(const at::Tensor& tensor) {
  return tensor.to(WideType(tensor));
}

/// […, N] as [rows, N], without a copy.
inline at::Tensor Rows(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

/// A new tensor of `shape` and `type` on `like`'s device; not initialised.
inline at::Tensor NewTensor(const at::Tensor& like, at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, like.options().dtype(type));
}

}  // namespace heddle::runtime
