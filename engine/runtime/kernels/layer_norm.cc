#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// x [..., D], weight [D], bias [D] -> y [..., D], mean [...], rstd [...].
Tensors LayerNorm(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const double epsilon = node.attributes.Float("epsilon");
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor mean = at::mean(x, {-1});
  const at::Tensor centred = x - mean.unsqueeze(-1);
  const at::Tensor rstd = at::rsqrt(at::mean(centred * centred, {-1}) + epsilon);
  const at::Tensor y = centred * rstd.unsqueeze(-1) * inputs[1] + inputs[2];
  return {y.to(inputs[0].scalar_type()), mean, rstd};
}

HEDDLE_REGISTER_KERNEL(layer_norm, LayerNorm);

}  // namespace
}  // namespace heddle::runtime
