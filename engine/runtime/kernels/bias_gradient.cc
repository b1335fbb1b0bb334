#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy [..., N] -> dbias [N] in the wide type.
Tensors BiasGradient(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t dim = inputs[0].size(-1);
    const int64_t rows = inputs[0].numel() / dim;
    at::Tensor result = NewTensor(inputs[0], {dim}, WideType(inputs[0]));
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelColumns(dim, rows, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().column_sum(Data<T>(inputs[0]), nullptr, nullptr, nullptr,
                                    Data<Wide<T>>(result), rows, dim, begin, end);
      });
    });
    return {result};
  }
  return {at::sum(Rows(inputs[0]), {0}, /*keepdim=*/false, WideType(inputs[0]))};
}

HEDDLE_REGISTER_KERNEL(bias_gradient, BiasGradient);

}  // namespace
}  // namespace heddle::runtime
