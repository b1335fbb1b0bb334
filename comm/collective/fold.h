/// \file
/// Reducing several buffers element by element in one pass over memory.
#pragma once

#include <cstddef>
#include <span>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Reduces `inputs` in their order, bit for bit as FoldInto and Convert of reduce.h do, and writes
/// the result to every output. All buffers have `bytes` bytes, whole elements of `dtype`, and may
/// be unaligned. An input may be exactly an output; otherwise they do not overlap. There is at
/// least one input.
void FoldAll(std::span<const std::byte* const> inputs,
             std::span<std::byte* const> outputs,
             size_t bytes,
             DType dtype,
             ReduceOp op);

}  // namespace heddle::comm
