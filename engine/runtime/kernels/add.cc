#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// a, b of one type and shape -> a + b.
Tensors Add(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  return {at::add(inputs[0], inputs[1])};
}

HEDDLE_REGISTER_KERNEL(add, Add);

}  // namespace
}  // namespace heddle::runtime
