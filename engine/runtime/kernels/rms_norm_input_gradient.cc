#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy, x [..., D], weight [D], rstd [...] -> dx. With h = dy * weight and n = x * rstd:
// dx = rstd * (h - n * mean(h * n)).
Tensors RmsNormInputGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor rstd = inputs[3].unsqueeze(-1);
  const at::Tensor h = Widen(inputs[0]) * inputs[2];
  const at::Tensor n = Widen(inputs[1]) * rstd;
  const at::Tensor dx = rstd * (h - n * at::mean(h * n, {-1}, /*keepdim=*/true));
  return {dx.to(inputs[1].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(rms_norm_input_gradient, RmsNormInputGradient);

}  // namespace
}  // namespace heddle::runtime
