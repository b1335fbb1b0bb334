#include "engine/runtime/device/cpu_device.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "engine/runtime/device/host_memory.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime {

CpuDevice::CpuDevice(const DeviceOptions& options) : Device(options) {
  CountHostTensors();
}

at::Tensor CpuDevice::Empty(const graph::TensorType& type) {
  return HostTensor(type);
}

at::Tensor CpuDevice::HostBuffer(const graph::TensorType& type) {
  return HostTensor(type);
}

Device::Outputs CpuDevice::Compute(std::function<Outputs()> work, const OutputTypes& /*types*/) {
  clock().Begin();
  Outputs outputs = work();
  clock().End();
  return outputs;
}

void CpuDevice::Update(std::function<void()> work) {
  clock().Begin();
  work();
  clock().End();
}

void CpuDevice::Prepare(std::function<void()> work) {
  work();
}

Result<std::vector<Duration>> CpuDevice::Measure(const std::vector<std::function<void()>>& works) {
  DeviceClock measured(clock().speed());
  measured.WaitFor(Now());
  std::vector<Duration> durations;
  for (const auto& work : works) {
    measured.Begin();
    work();
    durations.push_back(measured.End());
  }
  return durations;
}

Copied CpuDevice::Upload(at::Tensor host) {
  return {.tensor = std::move(host), .mark = {}};
}

Copied CpuDevice::Download(at::Tensor value) {
  return {.tensor = value.contiguous(), .mark = {}};
}

Mark CpuDevice::DownloadInto(at::Tensor value, at::Tensor host) {
  const c10::InferenceMode inference;
  host.copy_(value);
  return {};
}

Result<std::shared_ptr<void>> CpuDevice::RegisterHost(std::span<std::byte> /*memory*/) {
  return std::shared_ptr<void>();
}

void CpuDevice::Await(const Mark& /*mark*/) {}

Status CpuDevice::Drain(Deadline /*deadline*/) {
  return Status::Ok();
}

int64_t CpuDevice::memory_in_use() const {
  return HostTensorBytes();
}

int64_t CpuDevice::memory_peak() const {
  return HostTensorPeak();
}

void CpuDevice::ForgetPeak() {
  ForgetHostTensorPeak();
}

}  // namespace heddle::runtime
