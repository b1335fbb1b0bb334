#include "tests/support/device/fake_host_memory.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include "engine/runtime/device/tensor.h"
#include "tests/support/device/fake_memory.h"

namespace heddle::runtime::testing {
namespace {

constexpr size_t kPage = 4096;

bool Overlap(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
}

std::span<const std::byte> SpanOf(const std::pair<const std::byte* const, size_t>& range) {
  return {range.first, range.second};
}

/// Whether one of the ranges, of which no two overlap, has all of `memory`.
bool Contains(const std::map<const std::byte*, size_t>& ranges, std::span<const std::byte> memory) {
  const auto after = ranges.upper_bound(memory.data());
  return after != ranges.begin() &&
         memory.data() + memory.size() <= std::prev(after)->first + std::prev(after)->second;
}

/// Whether all pages are still mapped, by these owners or others.
bool IsMapped(std::span<const std::byte> memory) {
  std::vector<unsigned char> pages((memory.size() + kPage - 1) / kPage);
  auto* const begin = const_cast<std::byte*>(memory.data());
  return ::mincore(begin, memory.size(), pages.data()) == 0 || errno != ENOMEM;
}

}  // namespace

at::Tensor FakeHostMemory::Buffer(const graph::TensorType& type) {
  const size_t bytes =
      std::max<size_t>(1, (static_cast<size_t>(type.bytes()) + kPage - 1) / kPage) * kPage;
  std::vector<std::byte> memory;
  {
    const MutexLock lock(mutex_);
    if (auto& free = free_[bytes]; !free.empty()) {
      memory = std::move(free.back());
      free.pop_back();
    }
    memory.resize(bytes);
    if (IsUsed(memory, /*also_read=*/true)) {
      violations_.emplace_back("a buffer was used again under a copy");
    }
    buffers_[memory.data()] = bytes;
  }
  Poison(memory);
  std::byte* const data = memory.data();
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(memory));
  return at::from_blob(
      data, type.shape,
      [self = shared_from_this(), owner](void* /*data*/) { self->Give(std::move(*owner)); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

void FakeHostMemory::Give(std::vector<std::byte> memory) {
  const MutexLock lock(mutex_);
  buffers_.erase(memory.data());
  free_[memory.size()].push_back(std::move(memory));
}

std::shared_ptr<void> FakeHostMemory::Register(std::span<std::byte> memory) {
  const MutexLock lock(mutex_);
  // The memory of live slabs does not overlap.
  if (std::ranges::any_of(registered_,
                          [&](const auto& other) { return Overlap(SpanOf(other), memory); })) {
    violations_.emplace_back("registered memory was freed, and is registered again");
  }
  registered_[memory.data()] = memory.size();
  return {memory.data(),
          [self = shared_from_this(), memory](void* /*data*/) { self->Unregister(memory); }};
}

void FakeHostMemory::Unregister(std::span<std::byte> memory) {
  const MutexLock lock(mutex_);
  if (IsUsed(memory, /*also_read=*/true)) {
    violations_.emplace_back("a registration ended under a copy");
  }
  if (!IsMapped(memory)) {
    violations_.emplace_back("registered memory was freed before its registration ended");
  }
  registered_.erase(memory.data());
}

bool FakeHostMemory::IsUsed(std::span<const std::byte> memory, bool also_read) const {
  return std::ranges::any_of(copies_, [&](const Copy& copy) {
    return (also_read || copy.access == Access::kWrite) && Overlap(copy.memory, memory);
  });
}

std::shared_ptr<void> FakeHostMemory::Begin(const Copy& copy) {
  const MutexLock lock(mutex_);
  if (!copy.memory.empty()) {
    if (IsUsed(copy.memory, /*also_read=*/copy.access == Access::kWrite)) {
      violations_.emplace_back("memory of the host was used again under a copy");
    }
    pageable_copies_ +=
        Contains(buffers_, copy.memory) || Contains(registered_, copy.memory) ? 0 : 1;
  }
  const auto begun = copies_.insert(copies_.end(), copy);
  return {&*begun, [self = shared_from_this(), begun](void* /*copy*/) { self->End(begun); }};
}

void FakeHostMemory::End(std::list<Copy>::iterator copy) {
  const MutexLock lock(mutex_);
  copies_.erase(copy);
}

int64_t FakeHostMemory::registered() const {
  const MutexLock lock(mutex_);
  return std::ssize(registered_);
}

int64_t FakeHostMemory::pageable_copies() const {
  const MutexLock lock(mutex_);
  return pageable_copies_;
}

std::vector<std::string> FakeHostMemory::violations() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> all = violations_;
  for (const auto& range : registered_) {
    if (!IsMapped(SpanOf(range))) {
      all.emplace_back("registered memory was freed");
    }
  }
  return all;
}

}  // namespace heddle::runtime::testing
