#include <cmath>

#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// x [B, T, H*d] -> y: in each head, elements (i, i + d/2) are rotated by t * theta^(-2i/d), or back
// with `inverse` (Su et al. 2021, arXiv:2104.09864; halves as in Hugging Face's Llama).
Tensors Rope(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor& x = inputs[0];
  const int64_t length = x.size(1);
  const int64_t head_dim = node.attributes.Int("head_dim");
  const int64_t half = head_dim / 2;
  const double theta = node.attributes.Float("theta");
  const double sign = node.attributes.Int("inverse") != 0 ? -1.0 : 1.0;
  const at::Tensor exponent =
      at::arange(half, at::TensorOptions(at::kDouble)) * (-2.0 / static_cast<double>(head_dim));
  const at::Tensor angles = at::outer(at::arange(length, at::TensorOptions(at::kDouble)),
                                      at::exp(exponent * std::log(theta)));
  const auto wide = x.options().dtype(WideType(x));
  const at::Tensor cosine = at::cos(angles).to(wide).view({1, length, 1, half});
  const at::Tensor sine = (at::sin(angles) * sign).to(wide).view({1, length, 1, half});
  if (UsesLoops(x)) {
    at::Tensor y = at::empty_like(x);
    const int64_t width = x.size(2);
    WithElement(x, [&](auto element) {
      using T = decltype(element);
      ParallelRows(x.size(0) * length, width, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().rope(Data<T>(x), Data<Wide<T>>(cosine), Data<Wide<T>>(sine), Data<T>(y),
                              begin, end, length, width / head_dim, head_dim);
      });
    });
    return {y};
  }
  const at::Tensor heads = Widen(x).view({x.size(0), length, -1, head_dim});
  const at::Tensor low = heads.narrow(3, 0, half);
  const at::Tensor high = heads.narrow(3, half, half);
  const at::Tensor y = at::cat({low * cosine - high * sine, high * cosine + low * sine}, 3);
  return {y.view(x.sizes()).to(x.scalar_type())};
}

HEDDLE_REGISTER_KERNEL(rope, Rope);

}  // namespace
}  // namespace heddle::runtime
