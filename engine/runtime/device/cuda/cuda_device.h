/// \file
/// An NVIDIA card as a device. Work is called at once, in the calling thread, and queues kernels in
/// the stream of compute; copies, and sums among cards, run in streams of their own. libtorch
/// allocates the memory.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/runtime/device/cuda/copies.h"
#include "engine/runtime/device/cuda/peer_memory.h"
#include "engine/runtime/device/cuda/pinned_pool.h"
#include "engine/runtime/device/cuda/queues.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime::cuda {

/// Thread: as for Device.
class CudaDevice final : public Device {
 public:
  /// `ordinal`: CUDA's number of the card, on which libtorch is ready. `memory_bytes` and `card` as
  /// for Device, `peer_bytes_per_second` as for PeerMemory.
  CudaDevice(int ordinal,
             Arithmetic arithmetic,
             int64_t memory_bytes,
             std::string card,
             double peer_bytes_per_second,
             const DeviceOptions& options);
  /// Waits for what is queued.
  ~CudaDevice() override;

  Arithmetic arithmetic() const override { return arithmetic_; }
  bool is_host() const override { return false; }
  at::DeviceType type() const override { return at::kCUDA; }
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
  Mark Computed() override { return queues_->MarkOf(Queue::kCompute, {}); }
  PeerMemory* peer_memory() override { return &peers_; }
  void Await(const Mark& mark) override;
  Status Drain(Deadline deadline) override;
  int64_t memory_in_use() const override;
  int64_t memory_peak() const override;
  void ForgetPeak() override;

 private:
  void HarvestSometimes();
  at::Tensor UntilComputed(const at::Tensor& memory) const;
  c10::DeviceIndex Index() const;

  const Arithmetic arithmetic_;
  const std::shared_ptr<Queues> queues_;
  const std::shared_ptr<PinnedPool> pool_;
  Copies copies_;
  CardPeerMemory peers_;
  int calls_ = 0;
};

}  // namespace heddle::runtime::cuda
