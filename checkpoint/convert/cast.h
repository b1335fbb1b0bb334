/// \file
/// Converts the element type of weights among fp64, fp32, bf16 and fp16, rounding to the nearest
/// value, ties to even.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/tensor/dtype.h"

namespace heddle::checkpoint {

/// Whether Cast supports both types.
bool CanCast(DType from, DType to);

/// Casts `in`, whole elements of `from`, into `out`, as many elements of `to`. NaN stays NaN.
/// Errors: kOutOfRange for a finite value that `to` cannot hold (the largest of fp16 is 65504),
/// with the element's number; `out` is unspecified then. Thread: pure.
Status Cast(std::span<const std::byte> in, DType from, std::span<std::byte> out, DType to);

}  // namespace heddle::checkpoint
