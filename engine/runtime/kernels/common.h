/// \file
/// What most kernels share: the type that they compute in, views, and the choice between the CPU's
/// own loops (simd/) and plain ATen operations, which run on every libtorch device.
///
/// Words: "narrow" is the compute type (fp32, bf16, fp64); "wide" is the type of norms, softmax,
/// loss and weight gradients: fp64 for fp64, otherwise fp32, which is the master type.
#pragma once

#include <span>
#include <string_view>
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

/// Where a share begins in the whole, by the attribute `name`; 0 for the whole.
inline int64_t First(const graph::Node& node, std::string_view name) {
  return node.attributes.FindInt(name).value_or(0);
}

/// Tokens as rows of a share's table, and whether they are; others' rows have any number in it.
struct OwnRows {
  at::Tensor row;  ///< int64
  at::Tensor own;  ///< bool
};
inline OwnRows RowsOfShare(const at::Tensor& tokens, int64_t first_row, int64_t rows) {
  const at::Tensor row = tokens.to(at::kLong) - first_row;
  return {row.clamp(0, rows - 1), (row >= 0).logical_and(row < rows)};
}

}  // namespace heddle::runtime
