#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy, gate, up -> dgate, dup. With s = sigmoid(gate): dup = dy * gate * s and
// dgate = dy * up * s * (1 + gate * (1 - s)).
Tensors SwigluGradient(const graph::Node& /*node*/,
                       Inputs inputs,
                       const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    at::Tensor dgate = at::empty_like(inputs[1]);
    at::Tensor dup = at::empty_like(inputs[1]);
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelElements(inputs[0].numel(), [&](int64_t begin, int64_t end) {
        simd::Loops<T>().swiglu_gradient(Data<T>(inputs[0]) + begin, Data<T>(inputs[1]) + begin,
                                         Data<T>(inputs[2]) + begin, Data<T>(dgate) + begin,
                                         Data<T>(dup) + begin, end - begin);
      });
    });
    return {dgate, dup};
  }
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
