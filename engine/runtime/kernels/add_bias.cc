#include "engine/runtime/kernels/bias.h"

namespace heddle::runtime {
namespace {

// x [..., N], bias [N] of the wide type -> x + bias.
Tensors AddBias(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor y = inputs[0].clone();
  AddBiasTo(Rows(y), inputs[1]);
  return {y};
}

HEDDLE_REGISTER_KERNEL(add_bias, AddBias);

}  // namespace
}  // namespace heddle::runtime
