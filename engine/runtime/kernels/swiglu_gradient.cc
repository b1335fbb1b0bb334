#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy, gate, up -> dgate, dup. With s = sigmoid(gate): dup = dy * gate * s and
// dgate = dy * up * s * (1 + gate * (1 - s)).
Tensors SwigluGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor dy = Widen(inputs[0]);
  const at::Tensor gate = Widen(inputs[1]);
  const at::Tensor s = at::sigmoid(gate);
  const at::Tensor dgate = dy * Widen(inputs[2]) * s * (1.0 + gate * (1.0 - s));
  const at::Tensor dup = dy * gate * s;
  const at::ScalarType type = inputs[1].scalar_type();
  return {dgate.to(type), dup.to(type)};
}

HEDDLE_REGISTER_KERNEL(swiglu_gradient, SwigluGradient);

}  // namespace
}  // namespace heddle::runtime
