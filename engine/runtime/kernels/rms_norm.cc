#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// x [..., D], weight [D] -> y [..., D], rstd [...].
Tensors RmsNorm(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const double epsilon = node.attributes.Float("epsilon");
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor rstd = at::rsqrt(at::mean(x * x, {-1}) + epsilon);
  const at::Tensor y = x * rstd.unsqueeze(-1) * inputs[1];
  return {y.to(inputs[0].scalar_type()), rstd};
}

HEDDLE_REGISTER_KERNEL(rms_norm, RmsNorm);

}  // namespace
}  // namespace heddle::runtime
