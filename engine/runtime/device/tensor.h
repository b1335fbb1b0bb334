/// \file
/// Between Heddle's element types and libtorch's, and tensors in the host's memory. libtorch stays
/// behind engine/runtime.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

at::ScalarType ToScalarType(DType dtype);

/// Errors: kInvalidArgument for a type that Heddle does not know.
Result<DType> FromScalarType(at::ScalarType type);

/// An uninitialised contiguous tensor in ordinary memory of the host.
at::Tensor HostTensor(const graph::TensorType& type);

/// `bytes`, which has type.bytes() of them and outlives the tensor, as a tensor.
at::Tensor HostView(std::span<std::byte> bytes, const graph::TensorType& type);

/// The elements of a contiguous tensor in the host's memory as bytes, without a copy.
std::span<std::byte> BytesOf(const at::Tensor& tensor);

}  // namespace heddle::runtime
