#include "tests/support/device/cuda/cuda_queue.h"

#include <memory>
#include <utility>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace heddle::runtime::testing {

void CallInCudaQueue(std::function<void()> function) {
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const auto call = [](void* data) {
    const std::unique_ptr<std::function<void()>> called(static_cast<std::function<void()>*>(data));
    (*called)();
  };
  C10_CUDA_CHECK(
      cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream().stream(), call, owned.release()));
}

}  // namespace heddle::runtime::testing
