#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy, x [..., D], mean, rstd [...] -> dweight [D] = sum over rows of dy * (x - mean) * rstd.
Tensors LayerNormWeightGradient(const graph::Node& /*node*/,
                                Inputs inputs,
                                const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t dim = inputs[0].size(-1);
    const int64_t rows = inputs[0].numel() / dim;
    at::Tensor result = NewTensor(inputs[0], {dim}, WideType(inputs[0]));
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelColumns(dim, rows, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().column_sum(Data<T>(inputs[0]), Data<T>(inputs[1]),
                                    Data<Wide<T>>(inputs[2]), Data<Wide<T>>(inputs[3]),
                                    Data<Wide<T>>(result), rows, dim, begin, end);
      });
    });
    return {result};
  }
  const at::Tensor n =
      (Widen(Rows(inputs[1])) - inputs[2].reshape({-1, 1})) * inputs[3].reshape({-1, 1});
  return {at::sum(Widen(Rows(inputs[0])) * n, {0})};
}

HEDDLE_REGISTER_KERNEL(layer_norm_weight_gradient, LayerNormWeightGradient);

}  // namespace
}  // namespace heddle::runtime
