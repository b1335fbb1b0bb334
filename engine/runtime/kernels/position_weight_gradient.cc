#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy [B, T, D] -> dweight [P, D]: the sum over the batch in the T rows from `first_position` on;
// the others are 0. Samples are added one by one, so that the order is fixed on every device.
Tensors PositionWeightGradient(const graph::Node& node,
                               Inputs inputs,
                               const KernelContext& /*context*/) {
  const int64_t first = First(node, "first_position");
  if (UsesLoops(inputs[0])) {
    const at::Tensor& source = inputs[0];
    const int64_t sample = source.size(1) * source.size(2);
    at::Tensor result = at::zeros({node.attributes.Int("positions"), source.size(2)},
                                  source.options().dtype(WideType(source)));
    WithElement(source, [&](auto element) {
      using T = decltype(element);
      ParallelColumns(sample, source.size(0), [&](int64_t begin, int64_t end) {
        simd::Loops<T>().column_sum(Data<T>(source), nullptr, nullptr, nullptr,
                                    Data<Wide<T>>(result) + first * source.size(2), source.size(0),
                                    sample, begin, end);
      });
    });
    return {result};
  }
  const at::Tensor& dy = inputs[0];
  at::Tensor dweight =
      at::zeros({node.attributes.Int("positions"), dy.size(2)}, dy.options().dtype(WideType(dy)));
  at::Tensor used = dweight.narrow(0, first, dy.size(1));
  for (int64_t b = 0; b < dy.size(0); ++b) {
    used.add_(dy.select(0, b));
  }
  return {dweight};
}

HEDDLE_REGISTER_KERNEL(position_weight_gradient, PositionWeightGradient);

}  // namespace
}  // namespace heddle::runtime
