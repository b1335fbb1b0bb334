#include "engine/runtime/kernels/cuda/operands.h"
#include "engine/runtime/kernels/dropout_key.h"

namespace heddle::runtime::cuda {
namespace {

// x [B, T, D] -> x * mask / (1 - p), with the mask of all devices.
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  const double p = node.attributes.Float("p");
  if (!Fit(in, 1) || p <= 0.0) {
    return Plain("dropout", node, in, context);
  }
  const at::Tensor& x = in[0];
  const int64_t features = node.attributes.FindInt("features").value_or(x.size(2));
  const DropoutMask mask{
      .key = DropoutKey(node, context),
      .threshold = DropoutThreshold(p),
      .first_sample = context.first_sample,
      .length = x.size(1),
      .first = First(node, "first_position") * features + First(node, "first_feature"),
      .stride = features};
  at::Tensor y = at::empty_like(x);
  Dropout(RowsOf(x), mask, x.data_ptr(), y.data_ptr(), static_cast<float>(1.0 / (1.0 - p)),
          CurrentStream());
  CheckLaunch();
  return {y};
}

HEDDLE_REGISTER_CUDA_KERNEL(dropout, Forward);

}  // namespace
}  // namespace heddle::runtime::cuda
