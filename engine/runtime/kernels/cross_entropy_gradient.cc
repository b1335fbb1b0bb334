#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V], targets [B, T], lse [B, T] -> dlogits = scale * (softmax(logits) -
// onehot(target)); the first logit is `first_row`.
Tensors CrossEntropyGradient(const graph::Node& node,
                             Inputs inputs,
                             const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t vocabulary = inputs[0].size(2);
    at::Tensor result = at::empty_like(inputs[0]);
    WithElement(result, [&](auto element) {
      using T = decltype(element);
      ParallelRows(inputs[1].numel(), vocabulary, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().cross_entropy_gradient(
            Data<T>(inputs[0]) + begin * vocabulary, Data<int32_t>(inputs[1]) + begin,
            Data<Wide<T>>(inputs[2]) + begin, Data<T>(result) + begin * vocabulary, end - begin,
            vocabulary, First(node, "first_row"), node.attributes.Float("scale"));
      });
    });
    return {result};
  }
  const double scale = node.attributes.Float("scale");
  at::Tensor dlogits = at::exp(Widen(inputs[0]) - inputs[2].unsqueeze(-1));
  const at::Tensor targets = inputs[1].unsqueeze(-1);
  if (const auto first_row = node.attributes.FindInt("first_row")) {
    const OwnRows rows = RowsOfShare(targets, *first_row, dlogits.size(-1));
    dlogits.scatter_add_(-1, rows.row, -rows.own.to(dlogits.scalar_type()));
  } else {
    const at::Tensor minus_one = at::full({1}, -1.0, dlogits.options());
    dlogits.scatter_add_(-1, targets.to(at::kLong), minus_one.expand(targets.sizes()));
  }
  return {(dlogits * scale).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(cross_entropy_gradient, CrossEntropyGradient);

}  // namespace
}  // namespace heddle::runtime
