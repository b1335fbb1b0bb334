/// \file
/// The processor as a device. Work runs at once in the calling thread, so that all marks have
/// ended. Values are in the host's memory, so that a copy is the value itself.
#pragma once

#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// The processor. Thread: as for Device.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options = {});

  Arithmetic arithmetic() const override { return CpuArithmetic(); }
  bool is_host() const override { return true; }
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
  void Await(const Mark& mark) override;
  Status Drain(Deadline deadline) override;
  int64_t memory_in_use() const override;
  int64_t memory_peak() const override;
  void ForgetPeak() override;
};

}  // namespace heddle::runtime
