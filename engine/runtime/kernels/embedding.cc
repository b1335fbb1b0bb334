#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// tokens [B, T], weight [V, D] -> y [B, T, D]; with `first_row` -0.0 for the tokens of other
// shares.
Tensors Embedding(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const auto first_row = node.attributes.FindInt("first_row");
  if (!first_row) {
    return {at::embedding(inputs[1], inputs[0])};
  }
  const OwnRows rows = RowsOfShare(inputs[0], *first_row, inputs[1].size(0));
  return {
      at::embedding(inputs[1], rows.row).masked_fill(rows.own.logical_not().unsqueeze(-1), -0.0)};
}

HEDDLE_REGISTER_KERNEL(embedding, Embedding);

}  // namespace
}  // namespace heddle::runtime
