/// \file
/// The processor behind an adversarial device (engine/runtime/device/device.h). A thread of its own
/// does what is queued, as late as it may (fake_queues.h). Values that nobody has computed, memory
/// that was freed, and targets of copies under way are full of NaN; whoever touches the device's
/// memory from the host dies (fake_memory.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/runtime/device/device.h"
#include "tests/support/device/fake_host_memory.h"
#include "tests/support/device/fake_memory.h"
#include "tests/support/device/fake_options.h"
#include "tests/support/device/fake_peer_memory.h"
#include "tests/support/device/fake_queues.h"

namespace heddle::runtime::testing {

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const FakeOptions& options);

  Arithmetic arithmetic() const override { return {{"processor", "fake"}}; }
  bool is_host() const override { return false; }
  at::Tensor Empty(const graph::TensorType& type) override;
  at::Tensor HostBuffer(const graph::TensorType& type) override;
  Outputs Compute(std::function<Outputs()> work, const OutputTypes& types) override;
  void Update(std::function<void()> work) override;
  void Prepare(std::function<void()> work) override;
  Result<std::vector<Duration>> Measure(const std::vector<std::function<void()>>& works) override;
  Copied Upload(at::Tensor host) override;
  Copied Download(at::Tensor value) override;
  Mark DownloadInto(at::Tensor value, at::Tensor host) override;
  Result<std::shared_ptr<void>> RegisterHost(std::span<std::byte> memory) override;
  Result<std::shared_ptr<ExportedMemory>> Export(size_t bytes) override;
  Mark Computed() override;
  PeerMemory* peer_memory() override;
  void Await(const Mark& mark) override;
  Status Drain(Deadline deadline) override;
  int64_t memory_in_use() const override;
  int64_t memory_peak() const override;
  void ForgetPeak() override;

  const FakeHostMemory& host_memory() const { return *host_memory_; }
  /// What users of the device did that they must not do, a line each.
  std::vector<std::string> violations() const HEDDLE_EXCLUDES(mutex_);

 private:
  bool Has(Fault fault) const { return options_.fault == fault; }
  void PutWork(bool counted, std::function<void()> run);
  void Copy(std::span<const std::byte> from, std::span<std::byte> to, Fault skipped, Fault half);
  void Violate(std::string what) HEDDLE_EXCLUDES(mutex_);

  const FakeOptions options_;
  const std::shared_ptr<FakeMemory> memory_;
  const std::shared_ptr<FakeHostMemory> host_memory_;
  at::Tensor last_buffer_;        ///< For kBufferTwice.
  OperationPtr late_;             ///< For kAwaitLate.
  std::vector<at::Tensor> kept_;  ///< For kMemoryKept.
  int64_t copies_ = 0;            ///< That ran. The queues' thread's.
  mutable Mutex mutex_;
  std::vector<std::string> violations_ HEDDLE_GUARDED_BY(mutex_);
  FakePeerMemory peers_;
  FakeQueues queues_;  // Last: what it runs uses what stands above.
};

}  // namespace heddle::runtime::testing
