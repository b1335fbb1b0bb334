#include "engine/runtime/kernels/cuda/operands.h"

#include <algorithm>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "base/check.h"

namespace heddle::runtime::cuda {
namespace {

constexpr uintptr_t kPackBytes = 16;

}  // namespace

Stream CurrentStream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

void CheckLaunch() {
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensors Plain(std::string_view op,
              const graph::Node& node,
              Inputs in,
              const KernelContext& context) {
  const Kernel kernel = FindKernel(op);
  HEDDLE_CHECK(kernel != nullptr, "operator {} has no kernel", op);
  return kernel(node, in, context);
}

bool Fit(Inputs inputs, size_t values) {
  const at::ScalarType type = inputs[0].scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) {
    return false;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    const at::ScalarType own = input.scalar_type();
    const bool has_type = i < values ? own == type : own == at::kFloat || own == at::kInt;
    if (!has_type || !input.is_cuda() || !input.is_contiguous() ||
        reinterpret_cast<uintptr_t>(input.data_ptr()) % kPackBytes != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace heddle::runtime::cuda
