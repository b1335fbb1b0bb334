#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// gate, up [..., N] -> y of their shape.
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 2)) {
    return Plain("swiglu", node, in, context);
  }
  at::Tensor y = at::empty_like(in[0]);
  Swiglu(TypeOf(y), y.numel(), in[0].data_ptr(), in[1].data_ptr(), y.data_ptr(), CurrentStream());
  CheckLaunch();
  return {y};
}

// dy, gate, up -> dgate, dup.
Tensors Gradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 3)) {
    return Plain("swiglu_gradient", node, in, context);
  }
  at::Tensor dgate = at::empty_like(in[1]);
  at::Tensor dup = at::empty_like(in[1]);
  SwigluGradient(TypeOf(dup), dup.numel(), in[0].data_ptr(), in[1].data_ptr(), in[2].data_ptr(),
                 dgate.data_ptr(), dup.data_ptr(), CurrentStream());
  CheckLaunch();
  return {dgate, dup};
}

HEDDLE_REGISTER_CUDA_KERNEL(swiglu, Forward);
HEDDLE_REGISTER_CUDA_KERNEL(swiglu_gradient, Gradient);

}  // namespace
}  // namespace heddle::runtime::cuda
