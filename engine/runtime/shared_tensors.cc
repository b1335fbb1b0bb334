#include "engine/runtime/shared_tensors.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "base/log.h"
#include "base/mutex.h"
#include "engine/program/memory.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

class SharedTensors::Pool {
 public:
  Pool(comm::Endpoint& endpoint, Device& device) : endpoint_(&endpoint), device_(&device) {}

  /// Null: there is none.
  std::byte* Take(size_t piece) {
    const MutexLock lock(mutex_);
    std::vector<std::byte*>& free = free_[piece];
    if (free.empty()) {
      return Cut(piece);
    }
    std::byte* const taken = free.back();
    free.pop_back();
    return taken;
  }
  void Give(std::byte* memory, size_t piece) {
    const MutexLock lock(mutex_);
    free_[piece].push_back(memory);
  }
  /// The endpoint and the device go; tensors may stay.
  void Close() {
    const MutexLock lock(mutex_);
    endpoint_ = nullptr;
  }

 private:
  std::byte* Cut(size_t piece) HEDDLE_REQUIRES(mutex_) {
    if (rest_.size() < piece) {
      if (endpoint_ == nullptr) {
        return nullptr;
      }
      auto slab = endpoint_->AllocateShared(
          std::max(piece, static_cast<size_t>(program::kSharedSlabBytes)));
      if (!slab.ok()) {
        LogWarning("messages and sums are copied once more: {}", slab.status().message());
        endpoint_ = nullptr;
        return nullptr;
      }
      rest_ = slab->bytes();
      slabs_.push_back({.memory = *std::move(slab), .registration = Register(rest_)});
    }
    std::byte* const cut = rest_.data();
    rest_ = rest_.subspan(piece);
    return cut;
  }

  std::shared_ptr<void> Register(std::span<std::byte> slab) HEDDLE_REQUIRES(mutex_) {
    if (device_ == nullptr) {
      return nullptr;
    }
    auto registration = device_->RegisterHost(slab);
    if (!registration.ok()) {
      LogWarning("copies between device and shared memory are slower: {}",
                 registration.status().message());
      device_ = nullptr;
      return nullptr;
    }
    return *std::move(registration);
  }

  struct Slab {
    comm::SharedBuffer memory;
    std::shared_ptr<void> registration;  // Ends before the memory goes.
  };

  Mutex mutex_;
  comm::Endpoint* endpoint_ HEDDLE_GUARDED_BY(mutex_);  ///< Null: no more slabs.
  Device* device_ HEDDLE_GUARDED_BY(mutex_);            ///< Null: registers none.
  std::vector<Slab> slabs_ HEDDLE_GUARDED_BY(mutex_);
  std::span<std::byte> rest_ HEDDLE_GUARDED_BY(mutex_);                       ///< Of the last slab.
  std::map<size_t, std::vector<std::byte*>> free_ HEDDLE_GUARDED_BY(mutex_);  ///< By size.
};

SharedTensors::SharedTensors(comm::Endpoint& endpoint, Device& device)
    : device_(device),
      pool_(std::make_shared<Pool>(endpoint, device)) {}

SharedTensors::~SharedTensors() {
  pool_->Close();
}

at::Tensor SharedTensors::Empty(const graph::TensorType& type) {
  const int64_t bytes = type.bytes();
  const auto piece = static_cast<size_t>(
      bytes < program::kLeastSharedBytes ? 0 : program::SharedPieceBytes(bytes));
  std::byte* const memory = piece == 0 ? nullptr : pool_->Take(piece);
  if (memory == nullptr) {
    return device_.HostBuffer(type);
  }
  return at::from_blob(
      memory, type.shape,
      [pool = pool_, memory, piece](void* /*data*/) { pool->Give(memory, piece); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

}  // namespace heddle::runtime
