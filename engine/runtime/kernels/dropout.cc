#include <cmath>

#include <fmt/format.h>

#include "base/random.h"
#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// x [B, T, D] -> x * mask / (1 - p). An element is dropped when its 32-bit word of
// Philox(key(seed, site, step), sample, element / 4) is below p * 2^32; `element` counts within the
// sample, so the mask depends on no plan. The mask is made on the host for every device.
Tensors Dropout(const graph::Node& node, Inputs inputs, const KernelContext& context) {
  const at::Tensor& x = inputs[0];
  const double p = node.attributes.Float("p");
  if (p <= 0.0) {
    return {x.clone()};
  }
  const uint64_t key = StreamKey(
      context.seed, fmt::format("dropout.{}.{}", node.attributes.Int("site"), context.step));
  const uint64_t threshold = static_cast<uint64_t>(std::ldexp(p, 32));
  const int64_t samples = x.size(0);
  const int64_t elements = x.numel() / samples;
  at::Tensor mask = at::empty(x.sizes(), at::TensorOptions(at::kBool));
  bool* out = mask.data_ptr<bool>();
  for (int64_t b = 0; b < samples; ++b) {
    const uint64_t sample = static_cast<uint64_t>(context.first_sample + b);
    for (int64_t e = 0; e < elements; e += 4) {
      const auto words = Philox(key, sample, static_cast<uint64_t>(e / 4));
      for (int64_t i = e; i < std::min(e + 4, elements); ++i) {
        out[b * elements + i] = words[static_cast<size_t>(i - e)] >= threshold;
      }
    }
  }
  const at::Tensor kept = Widen(x) * (1.0 / (1.0 - p));
  return {at::where(mask.to(x.device()), kept, at::zeros({}, kept.options())).to(x.scalar_type())};
}

HEDDLE_REGISTER_KERNEL(dropout, Dropout);

}  // namespace
}  // namespace heddle::runtime
