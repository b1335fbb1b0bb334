/// \file
/// Element-wise reduction of byte buffers. bf16 and fp16 sums are added in fp32 and rounded once;
/// integers wrap. A NaN among the operands makes the result a NaN with an unspecified payload, for
/// max and min, too. Max and min of equal operands, including -0 and +0, return the left one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// The type of partial results of `op` over `dtype`: fp32 for bf16 and fp16 sums, else `dtype`.
DType PartialType(DType dtype, ReduceOp op);
/// Ratio of the size of a partial result to the size of an element.
inline int Widening(DType dtype, ReduceOp op) {
  return static_cast<int>(SizeOf(PartialType(dtype, op)) / SizeOf(dtype));
}

/// Computes partial[i] = partial[i] op value[i] on elements of `dtype`. The buffers have equal
/// sizes and may be unaligned.
void FoldInto(std::span<std::byte> partial,
              std::span<const std::byte> value,
              DType dtype,
              ReduceOp op);

/// Copies elements from one type to another: equal types, or between bf16/fp16 and fp32 (to nearest
/// even).
void Convert(std::span<const std::byte> from,
             DType from_type,
             std::span<std::byte> to,
             DType to_type);

}  // namespace heddle::comm
