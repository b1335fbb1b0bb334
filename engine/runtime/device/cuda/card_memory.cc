#include "engine/runtime/device/cuda/card_memory.h"

#include <exception>

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include "base/log.h"

namespace heddle::runtime::cuda {

void* AllocateOnCard(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) {
    return memory;
  }
  static_cast<void>(cudaGetLastError());  // So that the next launch is not blamed for it.
  try {
    c10::cuda::CUDACachingAllocator::emptyCache();
  } catch (const std::exception& error) {  // The card has failed, which its next user is told.
    LogWarning("the card's memory is not given back: {}", error.what());
    return nullptr;
  }
  if (cudaMalloc(&memory, bytes) == cudaSuccess) {
    return memory;
  }
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace heddle::runtime::cuda
