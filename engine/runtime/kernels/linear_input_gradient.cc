#include "engine/runtime/kernels/product.h"

namespace heddle::runtime {
namespace {

// dy [..., N], weight [N, K] -> dx [..., K] = dy weight.
Tensors LinearInputGradient(const graph::Node& /*node*/,
                            Inputs inputs,
                            const KernelContext& /*context*/) {
  std::vector<int64_t> shape(inputs[0].sizes().begin(), inputs[0].sizes().end());
  shape.back() = inputs[1].size(1);
  return {Product(Rows(inputs[0]), inputs[1]).view(shape)};
}

HEDDLE_REGISTER_KERNEL(linear_input_gradient, LinearInputGradient);

}  // namespace
}  // namespace heddle::runtime
