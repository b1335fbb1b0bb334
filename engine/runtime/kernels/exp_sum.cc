#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V], targets [B, T], most [B, T] -> [B, T, 2]: the sum of exp(logit - most), and the
// target's logit, -0.0 where it is another share's.
Tensors ExpSum(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor logits = Widen(inputs[0]);
  const at::Tensor sum = at::exp(logits - inputs[2].unsqueeze(-1)).sum(-1);
  const OwnRows rows =
      RowsOfShare(inputs[1].unsqueeze(-1), First(node, "first_row"), logits.size(-1));
  const at::Tensor chosen =
      logits.gather(-1, rows.row).masked_fill(rows.own.logical_not(), -0.0).squeeze(-1);
  return {at::stack({sum, chosen}, -1)};
}

HEDDLE_REGISTER_KERNEL(exp_sum, ExpSum);

}  // namespace
}  // namespace heddle::runtime
