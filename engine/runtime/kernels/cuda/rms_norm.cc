#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// x [..., D], weight [D] -> y [..., D], rstd [...].
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("rms_norm", node, in, context);
  }
  const at::Tensor& x = in[0];
  at::Tensor y = at::empty_like(x);
  at::Tensor rstd = NewTensor(x, x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)), at::kFloat);
  RmsNorm(RowsOf(x), x.data_ptr(), DataOf<float>(in[1]), y.data_ptr(), DataOf<float>(rstd),
          static_cast<float>(node.attributes.Float("epsilon")), CurrentStream());
  CheckLaunch();
  return {y, rstd};
}

// dy, x [..., D], weight [D], rstd [...] -> dx.
Tensors InputGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 2)) {
    return Plain("rms_norm_input_gradient", node, in, context);
  }
  at::Tensor dx = at::empty_like(in[1]);
  RmsNormInputGradient(RowsOf(dx), in[0].data_ptr(), in[1].data_ptr(), DataOf<float>(in[2]),
                       DataOf<float>(in[3]), dx.data_ptr(), CurrentStream());
  CheckLaunch();
  return {dx};
}

HEDDLE_REGISTER_CUDA_KERNEL(rms_norm, Forward);
HEDDLE_REGISTER_CUDA_KERNEL(rms_norm_input_gradient, InputGradient);

}  // namespace
}  // namespace heddle::runtime::cuda
