#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// x [..., D], weight [D] -> y [..., D], rstd [...].
Tensors RmsNorm(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t dim = inputs[0].size(-1);
    at::Tensor y = at::empty_like(inputs[0]);
    at::Tensor rstd =
        NewTensor(y, y.sizes().slice(0, static_cast<size_t>(y.dim() - 1)), WideType(y));
    WithElement(y, [&](auto element) {
      using T = decltype(element);
      ParallelRows(rstd.numel(), dim, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().rms_norm(Data<T>(inputs[0]) + begin * dim, Data<Wide<T>>(inputs[1]),
                                  Data<T>(y) + begin * dim, Data<Wide<T>>(rstd) + begin,
                                  end - begin, dim, node.attributes.Float("epsilon"));
      });
    });
    return {y, rstd};
  }
  const double epsilon = node.attributes.Float("epsilon");
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor rstd = at::rsqrt(at::mean(x * x, {-1}) + epsilon);
  const at::Tensor y = x * rstd.unsqueeze(-1) * inputs[1];
  return {y.to(inputs[0].scalar_type()), rstd};
}

HEDDLE_REGISTER_KERNEL(rms_norm, RmsNorm);

}  // namespace
}  // namespace heddle::runtime
