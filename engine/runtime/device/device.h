/// \file
/// The device of a worker: element types between Heddle and libtorch, and what a process does once
/// before it computes.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "base/tensor/dtype.h"

namespace heddle::runtime {

at::ScalarType ToScalarType(DType dtype);

/// Errors: kInvalidArgument for a type that Heddle does not know.
Result<DType> FromScalarType(at::ScalarType type);

/// "cpu", "cuda" or "cuda:N" as a device that this libtorch and this machine have.
/// Errors: kInvalidArgument for other words; kUnimplemented when the device is not there.
Result<c10::Device> OpenDevice(std::string_view name);

}  // namespace heddle::runtime
