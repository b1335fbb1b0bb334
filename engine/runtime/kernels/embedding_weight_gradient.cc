#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// dy [B, T, D], tokens [B, T] -> dweight [V, D]. Rows are added in the order of the tokens: no atomics
// (index_put_ with accumulation sorts on a GPU).
Tensors EmbeddingWeightGradient(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor dy = Widen(Rows(inputs[0]));
  at::Tensor dweight = at::zeros({node.attributes.Int("vocabulary"), dy.size(1)}, dy.options());
  dweight.index_put_({inputs[1].reshape({-1}).to(at::kLong)}, dy, /*accumulate=*/true);
  return {dweight};
}

HEDDLE_REGISTER_KERNEL(embedding_weight_gradient, EmbeddingWeightGradient);

}  // namespace
}  // namespace heddle::runtime
