/// \file
/// Folding several buffers at once, in one pass over memory.
#pragma once

#include <cstddef>
#include <span>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Folds `inputs` in their order, as by FoldInto and Convert of reduce.h (bit for bit), and writes
/// the result to every output. All are of `bytes`, whole elements of `dtype`, and may be unaligned.
/// An input may be exactly an output; otherwise they do not overlap. At least one input.
void FoldAll(std::span<const std::byte* const> inputs,
             std::span<std::byte* const> outputs,
             size_t bytes,
             DType dtype,
             ReduceOp op);

}  // namespace heddle::comm
