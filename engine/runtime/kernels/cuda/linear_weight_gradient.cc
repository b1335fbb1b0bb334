#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// dy [..., N], x [..., K] -> dweight [N, K] = dy^T x. The product gives its sums in fp32; in the
// plain form they are rounded to bf16 once.
Tensors WeightGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (in[0].scalar_type() != at::kBFloat16 || in[1].scalar_type() != at::kBFloat16) {
    return Plain("linear_weight_gradient", node, in, context);
  }
  return {at::mm(Rows(in[0]).t(), Rows(in[1]), at::kFloat)};
}

HEDDLE_REGISTER_CUDA_KERNEL(linear_weight_gradient, WeightGradient);

}  // namespace
}  // namespace heddle::runtime::cuda
