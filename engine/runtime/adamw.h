/// \file
/// Element-wise work of the optimizer step on the masters: AdamW, the sums of squares for the
/// global norm, and the addition of two partial gradients. On a CPU each is one pass over memory.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace heddle::runtime {

struct AdamWStep {
  double learning_rate = 0;
  double clip_factor = 1;  ///< Multiplies the gradient first: global-norm clipping.
  int64_t step = 1;        ///< Number of this update, from 1: bias correction.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;  ///< 0 for parameters without decay.
};

/// One step of AdamW with decoupled decay, exactly torch.optim.AdamW's formula (Loshchilov & Hutter
/// 2019, arXiv:1711.05101). `master`, the moments and `gradient` are contiguous, of one shape and
/// of the master type (fp32 or fp64); `compute_copy` (fp32, bf16 or fp64; it may be `master`
/// itself) becomes the new master in its own type. All on one device. Bits depend on the values
/// only, not on threads. Thread: one caller at a time for one set of tensors.
void AdamWUpdate(at::Tensor& master,
                 at::Tensor& exp_avg,
                 at::Tensor& exp_avg_sq,
                 const at::Tensor& gradient,
                 at::Tensor& compute_copy,
                 const AdamWStep& step);

/// Sums of squares are those of fixed blocks of 4096 elements, added in order.
constexpr int64_t SquareBlocks(int64_t elements) {
  return (elements + 4095) / 4096;
}
/// Puts the sum of the squares of each block of a contiguous fp32 or fp64 tensor into `sums`, a
/// contiguous fp64 tensor on its device with an element a block. On a CPU the bits do not depend on
/// the number of threads.
void SumSquaresOfBlocks(const at::Tensor& tensor, at::Tensor& sums);
/// The sum of the squares of a tensor in the host's memory.
double SumOfSquares(const at::Tensor& tensor);

/// left += right; both contiguous, of one type and shape.
void FoldInto(at::Tensor& left, const at::Tensor& right);

}  // namespace heddle::runtime
