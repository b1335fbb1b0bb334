#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V], targets [B, T] -> loss fp64 scalar = scale * sum of (lse - logit of the target),
// lse [B, T].
Tensors CrossEntropy(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor logits = Widen(inputs[0]);
  const at::Tensor lse = at::logsumexp(logits, {-1});
  const at::Tensor chosen = logits.gather(-1, inputs[1].to(at::kLong).unsqueeze(-1)).squeeze(-1);
  const at::Tensor loss = at::sum((lse - chosen).to(at::kDouble)) * node.attributes.Float("scale");
  return {loss, lse};
}

HEDDLE_REGISTER_KERNEL(cross_entropy, CrossEntropy);

}  // namespace
}  // namespace heddle::runtime
