#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V], targets [B, T], lse [B, T] -> dlogits = scale * (softmax(logits) - onehot(target)).
Tensors CrossEntropyGradient(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const double scale = node.attributes.Float("scale");
  at::Tensor dlogits = at::exp(Widen(inputs[0]) - inputs[2].unsqueeze(-1));
  const at::Tensor index = inputs[1].to(at::kLong).unsqueeze(-1);
  dlogits.scatter_add_(-1, index, at::full({1}, -1.0, dlogits.options()).expand(index.sizes()));
  return {(dlogits * scale).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(cross_entropy_gradient, CrossEntropyGradient);

}  // namespace
}  // namespace heddle::runtime
