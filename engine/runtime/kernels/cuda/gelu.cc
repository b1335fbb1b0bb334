#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// x -> y of its shape.
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("gelu", node, in, context);
  }
  at::Tensor y = at::empty_like(in[0]);
  Gelu(TypeOf(y), y.numel(), in[0].data_ptr(), y.data_ptr(), CurrentStream());
  CheckLaunch();
  return {y};
}

// dy, x -> dx.
Tensors Gradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 2)) {
    return Plain("gelu_gradient", node, in, context);
  }
  at::Tensor dx = at::empty_like(in[1]);
  GeluGradient(TypeOf(dx), dx.numel(), in[0].data_ptr(), in[1].data_ptr(), dx.data_ptr(),
               CurrentStream());
  CheckLaunch();
  return {dx};
}

HEDDLE_REGISTER_CUDA_KERNEL(gelu, Forward);
HEDDLE_REGISTER_CUDA_KERNEL(gelu_gradient, Gradient);

}  // namespace
}  // namespace heddle::runtime::cuda
