#include "engine/runtime/kernels/loops.h"
#include "engine/runtime/kernels/rope_tables.h"

namespace heddle::runtime {
namespace {

// x [B, T, H*d] -> y: in each head, elements (i, i + d/2) are rotated by t * theta^(-2i/d), or back
// with `inverse` (Su et al. 2021, arXiv:2104.09864; halves as in Hugging Face's Llama). t counts
// from `first_position`.
Tensors Rope(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor& x = inputs[0];
  const int64_t length = x.size(1);
  const int64_t head_dim = node.attributes.Int("head_dim");
  const int64_t half = head_dim / 2;
  const bool inverse = node.attributes.Int("inverse") != 0;
  const auto& tables =
      RopeTables(x, First(node, "first_position"), head_dim, node.attributes.Float("theta"));
  if (UsesLoops(x)) {
    at::Tensor y = at::empty_like(x);
    const int64_t width = x.size(2);
    WithElement(x, [&](auto element) {
      using T = decltype(element);
      ParallelRows(x.size(0) * length, width, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().rope(Data<T>(x), Data<Wide<T>>(tables.first), Data<Wide<T>>(tables.second),
                              Data<T>(y), begin, end, length, width / head_dim, head_dim, inverse);
      });
    });
    return {y};
  }
  const at::Tensor cosine = tables.first.view({1, length, 1, half});
  const at::Tensor sine = (inverse ? -tables.second : tables.second).view({1, length, 1, half});
  const at::Tensor heads = Widen(x).view({x.size(0), length, -1, head_dim});
  const at::Tensor low = heads.narrow(3, 0, half);
  const at::Tensor high = heads.narrow(3, half, half);
  const at::Tensor y = at::cat({low * cosine - high * sine, high * cosine + low * sine}, 3);
  return {y.view(x.sizes()).to(x.scalar_type())};
}

HEDDLE_REGISTER_KERNEL(rope, Rope);

}  // namespace
}  // namespace heddle::runtime
