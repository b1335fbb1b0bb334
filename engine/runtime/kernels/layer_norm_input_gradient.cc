#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy, x [..., D], weight [D], mean, rstd [...] -> dx. With h = dy * weight and n = (x - mean) * rstd:
// dx = rstd * (h - mean(h) - n * mean(h * n)).
Tensors LayerNormInputGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor rstd = inputs[4].unsqueeze(-1);
  const at::Tensor h = Widen(inputs[0]) * inputs[2];
  const at::Tensor n = (Widen(inputs[1]) - inputs[3].unsqueeze(-1)) * rstd;
  const at::Tensor dx =
      rstd * (h - at::mean(h, {-1}, /*keepdim=*/true) - n * at::mean(h * n, {-1}, /*keepdim=*/true));
  return {dx.to(inputs[1].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(layer_norm_input_gradient, LayerNormInputGradient);

}  // namespace
}  // namespace heddle::runtime
