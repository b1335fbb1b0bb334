/// \file
/// Changing the element type of weights: fp64, fp32, bf16 and fp16, to the nearest value, ties to
/// even.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/tensor/dtype.h"

namespace heddle::checkpoint {

/// Whether Cast knows both types.
bool CanCast(DType from, DType to);

/// Casts `in`, whole elements of `from`, into `out`, as many elements of `to`. NaN stays NaN.
/// Errors: kOutOfRange for a finite value that `to` cannot hold (fp16 ends at 65504), with its
/// number; `out` is unspecified then. Thread: pure.
Status Cast(std::span<const std::byte> in, DType from, std::span<std::byte> out, DType to);

}  // namespace heddle::checkpoint
