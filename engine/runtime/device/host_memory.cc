#include "engine/runtime/device/host_memory.h"

#include <atomic>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/csrc/api/include/torch/version.h>

#include "base/check.h"

namespace heddle::runtime {
namespace {

std::atomic<int64_t> in_use = 0;
std::atomic<int64_t> peak = 0;

void Count(int64_t bytes) {
  const int64_t now = in_use.fetch_add(bytes) + bytes;
  int64_t most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

int64_t SizeOf(void* memory) {
  return memory == nullptr ? 0 : static_cast<int64_t>(::malloc_usable_size(memory));
}

void FreeCounted(void* memory) {
  in_use -= SizeOf(memory);
  c10::GetDefaultCPUAllocator()->raw_deleter()(memory);
}

/// libtorch's allocator, whose blocks are those of malloc, with a count.
class CountingAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(size_t bytes) override {
    return Allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override {
    return Allocate(bytes);
  }
#endif
  c10::DeleterFnPtr raw_deleter() const override {
    return &FreeCounted;
  }

 private:
  static c10::DataPtr Allocate(size_t bytes) {
    c10::DataPtr taken = c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* const memory = taken.get();
    HEDDLE_CHECK(taken.release_context() == memory, "the allocator's blocks have contexts");
    Count(SizeOf(memory));
    return {memory, memory, &FreeCounted, c10::Device(c10::DeviceType::CPU)};
  }
};

// Any priority above that of libtorch's own allocator.
constexpr uint8_t kPriority = 1;

}  // namespace

void CountHostTensors() {
  // It is never destroyed: tensors may outlive all that is.
  static const auto* const counting = [] {
    auto* const made = new CountingAllocator;
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  static_cast<void>(counting);
}

int64_t HostTensorBytes() {
  return in_use.load();
}

int64_t HostTensorPeak() {
  return peak.load();
}

void ForgetHostTensorPeak() {
  peak.store(in_use.load());
}

}  // namespace heddle::runtime
