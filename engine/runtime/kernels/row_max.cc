#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V] -> the largest of each row, in the wide type.
Tensors RowMax(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  return {Widen(at::amax(inputs[0], {-1}))};
}

HEDDLE_REGISTER_KERNEL(row_max, RowMax);

}  // namespace
}  // namespace heddle::runtime
