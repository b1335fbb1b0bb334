#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {
namespace {

// tokens [B, T], weight [V, D] -> y [B, T, D].
Tensors Embedding(const graph::Node& /*node*/, Inputs inputs, const KernelContext& /*context*/) {
  return {at::embedding(inputs[1], inputs[0])};
}

HEDDLE_REGISTER_KERNEL(embedding, Embedding);

}  // namespace
}  // namespace heddle::runtime
