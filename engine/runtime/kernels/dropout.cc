#include <algorithm>

#include "base/random.h"
#include "engine/runtime/kernels/common.h"
#include "engine/runtime/kernels/dropout_key.h"

namespace heddle::runtime {
namespace {

/// Keeps or drops the `count` elements of a sample from `first` on.
void Mask(
    uint64_t key, uint64_t sample, uint64_t threshold, int64_t first, int64_t count, bool* out) {
  for (int64_t e = first; e < first + count;) {
    const auto words = Philox(key, sample, static_cast<uint64_t>(e / 4));
    const int64_t end = std::min(e / 4 * 4 + 4, first + count);
    for (; e < end; ++e) {
      *out++ = words[static_cast<size_t>(e % 4)] >= threshold;
    }
  }
}

// x [B, T, D] -> x * mask / (1 - p). An element is dropped when its 32-bit word of
// Philox(key(seed, site, step), sample, element / 4) is below p * 2^32; `element` counts within the
// sample of the whole, so the mask depends on no plan. The mask is made on the host.
Tensors Dropout(const graph::Node& node, Inputs inputs, const KernelContext& context) {
  const at::Tensor& x = inputs[0];
  const double p = node.attributes.Float("p");
  if (p <= 0.0) {
    return {x.clone()};
  }
  const uint64_t key = DropoutKey(node, context);
  const uint64_t threshold = DropoutThreshold(p);
  const int64_t length = x.size(1);
  const int64_t dim = x.size(2);
  const int64_t features = node.attributes.FindInt("features").value_or(dim);
  const int64_t first = First(node, "first_position") * features + First(node, "first_feature");
  at::Tensor mask = at::empty(x.sizes(), at::TensorOptions(at::kBool));
  for (int64_t row = 0; row < x.size(0) * length; ++row) {
    const auto sample = static_cast<uint64_t>(context.first_sample + row / length);
    Mask(key, sample, threshold, first + row % length * features, dim,
         mask.data_ptr<bool>() + row * dim);
  }
  const at::Tensor kept = Widen(x) * (1.0 / (1.0 - p));
  return {at::where(mask.to(x.device()), kept, at::zeros({}, kept.options())).to(x.scalar_type())};
}

HEDDLE_REGISTER_KERNEL(dropout, Dropout);

}  // namespace
}  // namespace heddle::runtime
