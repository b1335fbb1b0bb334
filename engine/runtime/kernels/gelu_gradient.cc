#include <cmath>

#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy, x -> dx. With s = sigmoid(2u), u as in gelu: dx = dy * (s + x * 2 s (1 - s) du/dx).
Tensors GeluGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    at::Tensor dx = at::empty_like(inputs[1]);
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelElements(inputs[0].numel(), [&](int64_t begin, int64_t end) {
        simd::Loops<T>().gelu_gradient(Data<T>(inputs[0]) + begin, Data<T>(inputs[1]) + begin,
                                       Data<T>(dx) + begin, end - begin);
      });
    });
    return {dx};
  }
  const double root = std::sqrt(2.0 / M_PI);
  const at::Tensor x = Widen(inputs[1]);
  const at::Tensor square = x * x;
  const at::Tensor s = at::sigmoid(2.0 * root * (x + square * x * 0.044715));
  const at::Tensor slope = root * (1.0 + square * (3.0 * 0.044715));
  const at::Tensor dx = Widen(inputs[0]) * (s + 2.0 * x * s * (1.0 - s) * slope);
  return {dx.to(inputs[1].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(gelu_gradient, GeluGradient);

}  // namespace
}  // namespace heddle::runtime
