#include "engine/runtime/device/cuda/pinned_pool.h"

#include <algorithm>
#include <bit>

#include <cuda_runtime_api.h>

namespace heddle::runtime::cuda {
namespace {

constexpr size_t kLeast = size_t{64} << 10;
constexpr size_t kUnit = size_t{1} << 20;

// Few sizes, so that most requests find memory that was used before.
size_t SizeFor(size_t bytes) {
  return bytes <= kUnit ? std::max(kLeast, std::bit_ceil(bytes))
                        : (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

PinnedPool::~PinnedPool() {
  for (const auto& [size, memories] : free_) {
    for (void* const memory : memories) {
      static_cast<void>(cudaFreeHost(memory));  // CUDA may have ended before.
    }
  }
}

std::shared_ptr<void> PinnedPool::Take(size_t bytes) {
  const size_t size = SizeFor(bytes);
  void* memory = nullptr;
  {
    const MutexLock lock(mutex_);
    if (auto& free = free_[size]; !free.empty()) {
      memory = free.back();
      free.pop_back();
    }
  }
  if (memory == nullptr && cudaHostAlloc(&memory, size, cudaHostAllocPortable) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // The caller does without it.
    return nullptr;
  }
  return {memory, [self = shared_from_this(), size](void* unused) { self->Give(unused, size); }};
}

void PinnedPool::Give(void* memory, size_t bytes) {
  const MutexLock lock(mutex_);
  free_[bytes].push_back(memory);
}

Result<std::shared_ptr<void>> LockInPlace(int ordinal, std::span<std::byte> memory) {
  static_cast<void>(cudaSetDevice(ordinal));
  const cudaError_t code = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // The caller does without it.
    return ResourceExhaustedError("{} bytes of shared memory cannot be locked for the card: {}",
                                  memory.size(), cudaGetErrorName(code));
  }
  return std::shared_ptr<void>(memory.data(), [ordinal](void* locked) {
    static_cast<void>(cudaSetDevice(ordinal));      // Else the thread opens another card.
    static_cast<void>(cudaHostUnregister(locked));  // CUDA may have ended before.
  });
}

bool IsPinned(const void* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace heddle::runtime::cuda
