/// \file
/// Conversions between Heddle's element types and libtorch's, and tensors in the host's memory.
/// Only engine/runtime uses libtorch. Thread: any.
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

/// Returns libtorch's type for an element type.
at::ScalarType ToScalarType(DType dtype);

/// Returns the element type for a type of libtorch. Errors: kInvalidArgument (Heddle has no such
/// type).
Result<DType> FromScalarType(at::ScalarType type);

/// Returns an uninitialised contiguous tensor in ordinary memory of the host.
at::Tensor HostTensor(const graph::TensorType& type);

/// Returns a contiguous tensor over `bytes`, without a copy. `bytes` has type.bytes() bytes and
/// outlives the tensor.
at::Tensor HostView(std::span<std::byte> bytes, const graph::TensorType& type);

/// Returns the bytes of a contiguous tensor in the host's memory, without a copy.
std::span<std::byte> BytesOf(const at::Tensor& tensor);

/// Returns the memory of a contiguous tensor on any device, by that device's addresses: the host reads
/// and writes it only if it is the host's.
std::span<std::byte> MemoryOf(const at::Tensor& tensor);

}  // namespace heddle::runtime
