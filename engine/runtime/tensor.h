/// \file
/// Between Heddle's element types and ATen's tensors. ATen stays behind engine/runtime.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include "engine/graph/graph.h"

namespace heddle::runtime {

/// An uninitialised contiguous CPU tensor.
at::Tensor EmptyTensor(const graph::TensorType& type);

/// The elements of a contiguous CPU tensor as bytes, without a copy.
std::span<std::byte> BytesOf(const at::Tensor& tensor);

}  // namespace heddle::runtime
