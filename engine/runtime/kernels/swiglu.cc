#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// gate, up [..., N] -> silu(gate) * up (Shazeer 2020, arXiv:2002.05202).
Tensors Swiglu(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    at::Tensor y = at::empty_like(inputs[0]);
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      ParallelElements(inputs[0].numel(), [&](int64_t begin, int64_t end) {
        simd::Loops<T>().swiglu(Data<T>(inputs[0]) + begin, Data<T>(inputs[1]) + begin,
                                Data<T>(y) + begin, end - begin);
      });
    });
    return {y};
  }
  const at::Tensor gate = Widen(inputs[0]);
  return {(gate * at::sigmoid(gate) * Widen(inputs[1])).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(swiglu, Swiglu);

}  // namespace
}  // namespace heddle::runtime
