/// \file
/// Element-wise folding of byte buffers. bf16 and fp16 sums are folded in fp32 and rounded once;
/// integers wrap. A NaN among the operands makes the result a NaN, also of max and min; whose
/// payload it has is not specified. Max and min of equal operands, also of -0 and +0, is the left
/// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/dtype.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// The type that partial results of `op` over `dtype` have: fp32 for bf16 and fp16 sums, else
/// `dtype`.
DType PartialType(DType dtype, ReduceOp op);
/// Size of a partial result over that of an element.
inline int Widening(DType dtype, ReduceOp op) {
  return static_cast<int>(SizeOf(PartialType(dtype, op)) / SizeOf(dtype));
}

/// partial[i] = partial[i] op value[i], all of `dtype`; the left operand is the partial. Buffers
/// may be unaligned; equal sizes.
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
