#include <cmath>

#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// x -> 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks & Gimpel 2016,
// arXiv:1606.08415), written as x * sigmoid(2u).
Tensors Gelu(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    at::Tensor y = at::empty_like(inputs[0]);
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelElements(inputs[0].numel(), [&](int64_t begin, int64_t end) {
        simd::Loops<T>().gelu(Data<T>(inputs[0]) + begin, Data<T>(y) + begin, end - begin);
      });
    });
    return {y};
  }
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor u = (x + x * x * x * 0.044715) * std::sqrt(2.0 / M_PI);
  return {(x * at::sigmoid(2.0 * u)).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(gelu, Gelu);

}  // namespace
}  // namespace heddle::runtime
