#include <cmath>

#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// x -> 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks & Gimpel 2016,
// arXiv:1606.08415), written as x * sigmoid(2u).
Tensors Gelu(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor u = (x + x * x * x * 0.044715) * std::sqrt(2.0 / M_PI);
  return {(x * at::sigmoid(2.0 * u)).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(gelu, Gelu);

}  // namespace
}  // namespace heddle::runtime
