/// \file
/// The element-wise work of an optimizer step: AdamW on the masters, the sums of squares for the
/// global norm, and the addition of two partial gradients. On a CPU each is one pass over memory.
///
/// The functions compute in the calling thread, on libtorch's threads, and return when the result
/// is complete; on a GPU they queue kernels. They throw libtorch's exceptions. Thread: any, as long
/// as no two calls use the same tensors.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace heddle::runtime {

/// The factors of one update of one parameter.
struct AdamWStep {
  double learning_rate = 0;
  double clip_factor = 1;   ///< The factor of global-norm clipping, by which gradients are scaled.
  int64_t step = 1;         ///< The number of the update, from 1 on, for the bias correction.
  double beta1 = 0.9;       ///< The decay rate of the first moment.
  double beta2 = 0.95;      ///< The decay rate of the second moment.
  double epsilon = 1e-8;    ///< A term of the denominator, which keeps it from 0.
  double weight_decay = 0;  ///< The decoupled decay; 0 for parameters without decay.
};

/// Updates a parameter by one step of AdamW with decoupled decay, by the formula of
/// torch.optim.AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101). `master`, the moments and
/// `gradient` are contiguous, of one shape and of the master type (fp32 or fp64). `compute_copy`
/// (fp32, bf16 or fp64; it may be `master` itself) becomes the new master in its own type. All
/// tensors are on one device. The bits of the result depend on the values and not on the number of
/// threads. Precondition: step.step >= 1.
void AdamWUpdate(at::Tensor& master,
                 at::Tensor& exp_avg,
                 at::Tensor& exp_avg_sq,
                 const at::Tensor& gradient,
                 at::Tensor& compute_copy,
                 const AdamWStep& step);

/// Returns the number of blocks of a tensor with so many elements. Sums of squares are taken over
/// fixed blocks of 4096 elements and added in order, so that they do not depend on threads.
constexpr int64_t SquareBlocks(int64_t elements) {
  return (elements + 4095) / 4096;
}
/// Computes the sum of the squares of each block of `tensor`, which is contiguous and fp32 or fp64,
/// into `sums`, a contiguous fp64 tensor on the same device with SquareBlocks(elements) elements.
/// On a CPU the bits do not depend on the number of threads.
void SumSquaresOfBlocks(const at::Tensor& tensor, at::Tensor& sums);
/// Returns the sum of the squares of `tensor`, which is contiguous, fp32 or fp64 and in the host's
/// memory.
double SumOfSquares(const at::Tensor& tensor);

/// Adds `right` to `left`, element by element. Both are contiguous, of one type and shape, and on
/// one device.
void FoldInto(at::Tensor& left, const at::Tensor& right);

}  // namespace heddle::runtime
