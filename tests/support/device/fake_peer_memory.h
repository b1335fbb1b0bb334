/// \file
/// Memory of a fake device that other fake devices read, in this process or another
/// (engine/runtime/device/peer_memory.h). What a copy is to fill is full of NaN from the call on, so
/// that whoever reads it too early, or still reads it, gets NaN. Only what runs in the device's queue
/// can touch it, and nobody writes to memory of another device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "engine/runtime/device/peer_memory.h"
#include "tests/support/device/fake_options.h"
#include "tests/support/device/fake_queues.h"

namespace heddle::runtime::testing {

class FakePeerMemory final : public PeerMemory {
 public:
  /// `queues` outlives this.
  FakePeerMemory(const FakeOptions& options, FakeQueues& queues);

  Result<Arena> Allocate(size_t bytes) override HEDDLE_EXCLUDES(mutex_);
  Result<std::shared_ptr<std::byte>> Open(std::span<const std::byte> handle) override
      HEDDLE_EXCLUDES(mutex_);
  Mark Copy(const Mark& after, std::vector<Stretch> stretches, std::shared_ptr<void> kept) override;
  Mark Add(Addition addition, std::shared_ptr<void> kept) override;

  /// Bytes of the arenas that the device has allocated.
  int64_t in_use() const { return in_use_->load(); }

 private:
  class View;

  bool Has(Fault fault) const { return options_.fault == fault; }
  Mark Put(std::function<void()> run, OperationPtr after, std::shared_ptr<void> kept);
  std::shared_ptr<std::byte> Keep(std::shared_ptr<View> view) HEDDLE_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<View>> Views() HEDDLE_EXCLUDES(mutex_);
  bool IsOfAnother(const std::byte* place) HEDDLE_EXCLUDES(mutex_);

  const FakeOptions options_;
  FakeQueues& queues_;
  const std::shared_ptr<std::atomic<int64_t>> in_use_ = std::make_shared<std::atomic<int64_t>>(0);
  Mutex mutex_;
  std::vector<std::weak_ptr<View>> views_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::runtime::testing
