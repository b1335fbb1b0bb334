/// \file
/// What makes a card's results a function of their inputs.
#pragma once

#include "engine/machine/cards.h"
#include "engine/runtime/device/arithmetic.h"

namespace heddle::runtime::cuda {

/// Sets for this process that libtorch's kernels give the same bits each time, on which attention's
/// backward pass depends, and turns off what they round for speed: TF32 in products, and sums in
/// bf16 or fp16 inside of them. Products give the same bits without a setting of cuBLAS, as long as
/// one stream computes them: CUBLAS_WORKSPACE_CONFIG would make each of them five times as expensive
/// to launch.
void ComputeExactly();

/// The arithmetic of CUDA's card `ordinal`: "card" (its model, its compute capability and the number
/// of its multiprocessors, by which libraries choose kernels), "driver", "cuda" (the runtime, and
/// the compiler of Heddle's kernels), "cublas", "cudnn", "attention" (AttentionName), "libtorch", "libc"
/// and "compiler", which compute the factors of an update.
Arithmetic CudaArithmetic(int ordinal, const machine::Cards& cards);

}  // namespace heddle::runtime::cuda
