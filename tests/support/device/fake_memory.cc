#include "tests/support/device/fake_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

#include <ATen/ATen.h>
#include <sys/mman.h>

#include "base/check.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime::testing {
namespace {

constexpr size_t kPage = 4096;

size_t WholePages(size_t bytes) {
  return std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

void Poison(std::span<std::byte> bytes) {
  std::memset(bytes.data(), 0xFF, bytes.size());
}

FakeMemory::FakeMemory(size_t bytes) {
  void* const memory = ::mmap(nullptr, WholePages(bytes), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HEDDLE_CHECK(memory != MAP_FAILED, "no room for a device's memory");
  all_ = {static_cast<std::byte*>(memory), WholePages(bytes)};
}

FakeMemory::~FakeMemory() {
  ::munmap(all_.data(), all_.size());
}

at::Tensor FakeMemory::Empty(const graph::TensorType& type) {
  const std::span<std::byte> memory = Take(WholePages(static_cast<size_t>(type.bytes())));
  return at::from_blob(
      memory.data(), type.shape,
      [self = shared_from_this(), memory](void* /*data*/) { self->Give(memory); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

std::span<std::byte> FakeMemory::Take(size_t bytes) {
  const MutexLock lock(mutex_);
  std::byte* taken = nullptr;
  if (std::vector<std::byte*>& free = free_[bytes]; !free.empty()) {
    taken = free.back();
    free.pop_back();
  } else {
    if (all_.size() - used_ < bytes) {
      throw std::bad_alloc();
    }
    taken = all_.data() + used_;
    used_ += bytes;
    to_poison_.emplace_back(taken, bytes);
  }
  in_use_ += static_cast<int64_t>(bytes);
  peak_ = std::max(peak_, in_use_);
  return {taken, bytes};
}

void FakeMemory::Give(std::span<std::byte> memory) {
  const MutexLock lock(mutex_);
  in_use_ -= static_cast<int64_t>(memory.size());
  free_[memory.size()].push_back(memory.data());
  to_poison_.push_back(memory);
}

void FakeMemory::Open() {
  const MutexLock lock(mutex_);
  HEDDLE_CHECK(::mprotect(all_.data(), WholePages(used_), PROT_READ | PROT_WRITE) == 0,
               "a device's memory cannot be opened");
  for (const std::span<std::byte> memory : to_poison_) {
    Poison(memory);
  }
  to_poison_.clear();
}

void FakeMemory::Close() {
  const MutexLock lock(mutex_);
  HEDDLE_CHECK(::mprotect(all_.data(), WholePages(used_), PROT_NONE) == 0,
               "a device's memory cannot be closed");
}

int64_t FakeMemory::in_use() const {
  const MutexLock lock(mutex_);
  return in_use_;
}

int64_t FakeMemory::peak() const {
  const MutexLock lock(mutex_);
  return peak_;
}

void FakeMemory::ForgetPeak() {
  const MutexLock lock(mutex_);
  peak_ = in_use_;
}

at::Tensor FakePool::Take(const graph::TensorType& type) {
  const size_t bytes = WholePages(static_cast<size_t>(type.bytes()));
  std::vector<std::byte> memory;
  {
    const MutexLock lock(mutex_);
    if (auto& free = free_[bytes]; !free.empty()) {
      memory = std::move(free.back());
      free.pop_back();
      reused_ += held_.contains(memory.data()) ? 1 : 0;
    }
  }
  memory.resize(bytes);
  Poison(memory);
  std::byte* const data = memory.data();
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(memory));
  return at::from_blob(
      data, type.shape,
      [self = shared_from_this(), owner](void* /*data*/) { self->Give(std::move(*owner)); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

void FakePool::Give(std::vector<std::byte> memory) {
  const MutexLock lock(mutex_);
  free_[memory.size()].push_back(std::move(memory));
}

void FakePool::Hold(const at::Tensor& host) {
  const MutexLock lock(mutex_);
  ++held_[host.data_ptr()];
}

void FakePool::Release(const void* memory) {
  const MutexLock lock(mutex_);
  const auto found = held_.find(memory);
  if (found != held_.end() && --found->second == 0) {
    held_.erase(found);
  }
}

int64_t FakePool::reused() const {
  const MutexLock lock(mutex_);
  return reused_;
}

}  // namespace heddle::runtime::testing
