#include "engine/runtime/kernels/product.h"

namespace heddle::runtime {
namespace {

// dy [..., N], x [..., K] -> dweight [N, K] = dy^T x in the wide type.
Tensors LinearWeightGradient(const graph::Node& /*node*/,
                             Inputs inputs,
                             const KernelContext& /*context*/) {
  return {WideProduct(Rows(inputs[0]).t(), Rows(inputs[1]))};
}

HEDDLE_REGISTER_KERNEL(linear_weight_gradient, LinearWeightGradient);

}  // namespace
}  // namespace heddle::runtime
