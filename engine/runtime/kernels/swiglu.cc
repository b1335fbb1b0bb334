#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// gate, up [..., N] -> silu(gate) * up (Shazeer 2020, arXiv:2002.05202).
Tensors Swiglu(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  const at::Tensor gate = Widen(inputs[0]);
  return {(gate * at::sigmoid(gate) * Widen(inputs[1])).to(inputs[0].scalar_type())};
}

HEDDLE_REGISTER_KERNEL(swiglu, Swiglu);

}  // namespace
}  // namespace heddle::runtime
