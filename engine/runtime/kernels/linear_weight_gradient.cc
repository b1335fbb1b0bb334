#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy [..., N], x [..., K] -> dweight [N, K] = dy^T x. bf16 products are accumulated in fp32 inside the
// matrix library, but it returns them in bf16: one rounding of 2^-9 relative a microbatch, as in PyTorch's
// autocast; sums over microbatches are fp32.
Tensors LinearWeightGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  return {Widen(at::mm(Rows(inputs[0]).t(), Rows(inputs[1])))};
}

HEDDLE_REGISTER_KERNEL(linear_weight_gradient, LinearWeightGradient);

}  // namespace
}  // namespace heddle::runtime
