#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// most [B, T], sums [B, T, 2] -> loss fp64 scalar = scale * sum of (lse - logit of the target),
// lse [B, T].
Tensors CrossEntropyOfSums(const graph::Node& node,
                           Inputs inputs,
                           const KernelContext& /*context*/) {
  const at::Tensor lse = inputs[0] + at::log(inputs[1].select(-1, 0));
  const at::Tensor loss = at::sum((lse - inputs[1].select(-1, 1)).to(at::kDouble));
  return {loss * node.attributes.Float("scale"), lse};
}

HEDDLE_REGISTER_KERNEL(cross_entropy_of_sums, CrossEntropyOfSums);

}  // namespace
}  // namespace heddle::runtime
