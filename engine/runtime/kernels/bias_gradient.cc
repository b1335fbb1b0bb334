#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy [..., N] -> dbias [N] in the wide type.
Tensors BiasGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  return {at::sum(Rows(inputs[0]), {0}, /*keepdim=*/false, WideType(inputs[0]))};
}

HEDDLE_REGISTER_KERNEL(bias_gradient, BiasGradient);

}  // namespace
}  // namespace heddle::runtime
