#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy, x [..., D], weight [D], mean, rstd [...] -> dx. With h = dy * weight and n = (x - mean) *
// rstd: dx = rstd * (h - mean(h) - n * mean(h * n)).
Tensors LayerNormInputGradient(const graph::Node& /*node*/,
                               Inputs inputs,
                               const KernelContext& /*context*/) {
  if (UsesLoops(inputs[1])) {
    const int64_t dim = inputs[1].size(-1);
    at::Tensor result = at::empty_like(inputs[1]);
    WithElement(result, [&](auto element) {
      using T = decltype(element);
      ParallelRows(result.numel() / dim, dim, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().layer_norm_input_gradient(
            Data<T>(inputs[0]) + begin * dim, Data<T>(inputs[1]) + begin * dim,
            Data<Wide<T>>(inputs[2]), Data<Wide<T>>(inputs[3]) + begin,
            Data<Wide<T>>(inputs[4]) + begin, Data<T>(result) + begin * dim, end - begin, dim);
      });
    });
    return {result};
  }
  const at::Tensor rstd = inputs[4].unsqueeze(-1);
  const at::Tensor h = Widen(inputs[0]) * inputs[2];
  const at::Tensor n = (Widen(inputs[1]) - inputs[3].unsqueeze(-1)) * rstd;
  const at::Tensor dx = rstd * (h - at::mean(h, {-1}, /*keepdim=*/true) -
                                n * at::mean(h * n, {-1}, /*keepdim=*/true));
  return {dx.to(inputs[1].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(layer_norm_input_gradient, LayerNormInputGradient);

}  // namespace
}  // namespace heddle::runtime
