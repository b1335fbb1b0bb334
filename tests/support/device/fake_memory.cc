#include "tests/support/device/fake_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <ATen/ATen.h>
#include <sys/mman.h>

#include "base/check.h"
#include "engine/runtime/device/tensor.h"
#include "tests/support/device/fake_export.h"

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

bool IsPoisoned(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xFF}; });
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
  for (const auto& exported : exports_) {
    if (const auto there = exported.lock()) {
      there->Open();
    }
  }
}

void FakeMemory::Add(std::weak_ptr<FakeExport> exported) {
  const MutexLock lock(mutex_);
  exports_.push_back(std::move(exported));
}

void FakeMemory::Close() {
  const MutexLock lock(mutex_);
  for (const auto& exported : exports_) {
    if (const auto there = exported.lock()) {
      there->Close();
    }
  }
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

}  // namespace heddle::runtime::testing
