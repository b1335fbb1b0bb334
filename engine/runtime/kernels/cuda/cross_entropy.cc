#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// logits [B, T, V], targets [B, T] -> loss fp64 scalar, lse [B, T].
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("cross_entropy", node, in, context);
  }
  at::Tensor lse = NewTensor(in[0], in[1].sizes(), at::kFloat);
  const at::Tensor losses = at::empty_like(lse);
  at::Tensor total = NewTensor(in[0], {}, at::kDouble);
  CrossEntropy(RowsOf(in[0]), in[0].data_ptr(), DataOf<int32_t>(in[1]), DataOf<float>(lse),
               DataOf<float>(losses), DataOf<double>(total), node.attributes.Float("scale"),
               CurrentStream());
  CheckLaunch();
  return {total, lse};
}

// logits [B, T, V], targets [B, T], lse [B, T] -> dlogits.
Tensors Gradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("cross_entropy_gradient", node, in, context);
  }
  at::Tensor dlogits = at::empty_like(in[0]);
  CrossEntropyGradient(RowsOf(in[0]), in[0].data_ptr(), DataOf<int32_t>(in[1]),
                       DataOf<float>(in[2]), dlogits.data_ptr(), First(node, "first_row"),
                       static_cast<float>(node.attributes.Float("scale")), CurrentStream());
  CheckLaunch();
  return {dlogits};
}

HEDDLE_REGISTER_CUDA_KERNEL(cross_entropy, Forward);
HEDDLE_REGISTER_CUDA_KERNEL(cross_entropy_gradient, Gradient);

}  // namespace
}  // namespace heddle::runtime::cuda
