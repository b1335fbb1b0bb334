#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy, x [..., D], mean, rstd [...] -> dweight [D] = sum over rows of dy * (x - mean) * rstd.
Tensors LayerNormWeightGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor n =
      (Widen(Rows(inputs[1])) - inputs[2].reshape({-1, 1})) * inputs[3].reshape({-1, 1});
  return {at::sum(Widen(Rows(inputs[0])) * n, {0})};
}

HEDDLE_REGISTER_KERNEL(layer_norm_weight_gradient, LayerNormWeightGradient);

}  // namespace
}  // namespace heddle::runtime
