#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// x [..., D], weight [D], bias [D] -> y [..., D], mean [...], rstd [...].
Tensors LayerNorm(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t dim = inputs[0].size(-1);
    at::Tensor y = at::empty_like(inputs[0]);
    at::Tensor mean =
        NewTensor(y, y.sizes().slice(0, static_cast<size_t>(y.dim() - 1)), WideType(y));
    at::Tensor rstd = at::empty_like(mean);
    WithElement(y, [&](auto element) {
      using T = decltype(element);
      ParallelRows(mean.numel(), dim, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().layer_norm(Data<T>(inputs[0]) + begin * dim, Data<Wide<T>>(inputs[1]),
                                    Data<Wide<T>>(inputs[2]), Data<T>(y) + begin * dim,
                                    Data<Wide<T>>(mean) + begin, Data<Wide<T>>(rstd) + begin,
                                    end - begin, dim, node.attributes.Float("epsilon"));
      });
    });
    return {y, mean, rstd};
  }
  const double epsilon = node.attributes.Float("epsilon");
  const at::Tensor x = Widen(inputs[0]);
  const at::Tensor mean = at::mean(x, {-1});
  const at::Tensor centred = x - mean.unsqueeze(-1);
  const at::Tensor rstd = at::rsqrt(at::mean(centred * centred, {-1}) + epsilon);
  const at::Tensor y = centred * rstd.unsqueeze(-1) * inputs[1] + inputs[2];
  return {y.to(inputs[0].scalar_type()), mean, rstd};
}

HEDDLE_REGISTER_KERNEL(layer_norm, LayerNorm);

}  // namespace
}  // namespace heddle::runtime
