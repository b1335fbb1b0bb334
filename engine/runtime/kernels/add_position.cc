#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// x [B, T, D], weight [P, D] -> x + weight[:T], or the T rows from `first_position` on.
Tensors AddPosition(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const int64_t first = First(node, "first_position");
  if (UsesLoops(inputs[0])) {
    at::Tensor y = at::empty_like(inputs[0]);
    const int64_t sample = y.size(1) * y.size(2);
    WithElement(y, [&](auto element) {
      using T = decltype(element);
      ParallelRows(y.size(0), sample, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          simd::Loops<T>().add(Data<T>(inputs[0]) + b * sample,
                               Data<T>(inputs[1]) + first * y.size(2), Data<T>(y) + b * sample,
                               sample);
        }
      });
    });
    return {y};
  }
  return {at::add(inputs[0], inputs[1].narrow(0, first, inputs[0].size(1)))};
}

HEDDLE_REGISTER_KERNEL(add_position, AddPosition);

}  // namespace
}  // namespace heddle::runtime
