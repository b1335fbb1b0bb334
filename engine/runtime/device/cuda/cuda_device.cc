#include "engine/runtime/device/cuda/cuda_device.h"

#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/check.h"
#include "engine/runtime/device/cuda/cuda_errors.h"
#include "engine/runtime/device/cuda/export.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime::cuda {
namespace {

// So many works may have ended before they are counted and what they kept is freed.
constexpr int kHarvestEvery = 16;

c10::cuda::CUDAStream StreamOf(const Queues& queues, Queue queue) {
  return c10::cuda::getStreamFromExternal(queues.stream(queue),
                                          static_cast<c10::DeviceIndex>(queues.ordinal()));
}

/// Kernels of the calling thread go to this stream, and memory that it allocates belongs to it.
class On {
 public:
  On(const Queues& queues, Queue queue) : guard_(StreamOf(queues, queue)) {}

 private:
  const c10::cuda::CUDAStreamGuard guard_;
};

at::Tensor OnCard(const Queues& queues, Queue queue, at::IntArrayRef shape, at::ScalarType type) {
  const On on(queues, queue);
  return at::empty(shape, at::TensorOptions().dtype(type).device(
                              at::kCUDA, static_cast<c10::DeviceIndex>(queues.ordinal())));
}

}  // namespace

CudaDevice::CudaDevice(int ordinal,
                       Arithmetic arithmetic,
                       int64_t memory_bytes,
                       std::string card,
                       double peer_bytes_per_second,
                       const DeviceOptions& options)
    : Device(options, memory_bytes, std::move(card)),
      arithmetic_(std::move(arithmetic)),
      queues_(
          std::make_shared<Queues>(ordinal, [this](Duration duration) { clock().Add(duration); })),
      pool_(std::make_shared<PinnedPool>()),
      copies_(queues_, pool_),
      peers_(queues_, peer_bytes_per_second) {}

CudaDevice::~CudaDevice() {
  Drain(After(kLongestWait)).IgnoreError("nobody waits for its results");
  queues_->Close();
}

at::Tensor CudaDevice::Empty(const graph::TensorType& type) {
  return OnCard(*queues_, Queue::kCompute, type.shape, ToScalarType(type.dtype));
}

at::Tensor CudaDevice::HostBuffer(const graph::TensorType& type) {
  queues_->Use();
  std::shared_ptr<void> memory = pool_->Take(static_cast<size_t>(type.bytes()));
  if (memory == nullptr) {
    return HostTensor(type);  // Copies are slower from there.
  }
  void* const data = memory.get();
  return at::from_blob(
      data, type.shape, [memory = std::move(memory)](void* /*data*/) mutable { memory.reset(); },
      at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

void CudaDevice::HarvestSometimes() {
  if (++calls_ % kHarvestEvery == 0) {
    queues_->Harvest();
  }
}

Device::Outputs CudaDevice::Compute(std::function<Outputs()> work, const OutputTypes& /*types*/) {
  HarvestSometimes();
  const On on(*queues_, Queue::kCompute);
  queues_->BeginWork();
  Outputs outputs;
  try {
    outputs = work();
  } catch (const std::exception& error) {
    queues_->Fail(StatusOf(error));
    throw;
  }
  queues_->EndWork();
  return outputs;
}

void CudaDevice::Update(std::function<void()> work) {
  HarvestSometimes();
  const On on(*queues_, Queue::kCompute);
  queues_->BeginWork();
  try {
    work();
  } catch (const std::exception& error) {
    queues_->Fail(StatusOf(error));
  }
  queues_->EndWork();
}

void CudaDevice::Prepare(std::function<void()> work) {
  const On on(*queues_, Queue::kCompute);
  try {
    work();
  } catch (const std::exception& error) {
    queues_->Fail(StatusOf(error));
  }
}

Result<std::vector<Duration>> CudaDevice::Measure(const std::vector<std::function<void()>>& works) {
  // In a step the host is ahead of the card, and its launches cost the card nothing.
  const std::shared_ptr<Gate> gate = queues_->HoldCompute();
  std::vector<Event> points = {queues_->Point()};
  for (const auto& work : works) {
    Prepare(work);
    points.push_back(queues_->Point());
  }
  gate->Open();
  HEDDLE_RETURN_IF_ERROR(Drain(After(kLongestWait)));
  std::vector<Duration> durations;
  for (size_t i = 0; i < works.size(); ++i) {
    durations.push_back(queues_->Between(points[i], points[i + 1]));
  }
  return durations;
}

// The stream of copies up does not wait for compute that used the memory before. So the memory is
// given back when the compute has ended that was queued by the time the tensor went. libtorch's
// recordStream does the same, but once the card has failed it throws in the tensor's destructor.
at::Tensor CudaDevice::UntilComputed(const at::Tensor& memory) const {
  const auto give_back = [memory = at::Tensor(memory),
                          queues = std::weak_ptr<Queues>(queues_)](void* /*data*/) mutable {
    if (const auto in_use = queues.lock()) {
      in_use->MarkOf(Queue::kCompute,
                     {.tensors = {std::exchange(memory, at::Tensor())}, .memory = {}});
    }
  };
  return at::from_blob(memory.data_ptr(), memory.sizes(), give_back, memory.options());
}

Copied CudaDevice::Upload(at::Tensor host) {
  HEDDLE_CHECK(host.is_contiguous() && host.device().is_cpu(), "an upload of no host's tensor");
  queues_->Harvest();
  const c10::InferenceMode inference;
  const at::Tensor memory = OnCard(*queues_, Queue::kUp, host.sizes(), host.scalar_type());
  Queues::Kept kept{.tensors = {host, memory}, .memory = {}};
  copies_.Up(memory.data_ptr(), host.data_ptr(), memory.nbytes(), kept);
  return {.tensor = memory.numel() > 0 ? UntilComputed(memory) : memory,
          .mark = queues_->MarkOf(Queue::kUp, std::move(kept))};
}

Copied CudaDevice::Download(at::Tensor value) {
  at::Tensor host = HostBuffer(
      {*FromScalarType(value.scalar_type()), Shape(value.sizes().begin(), value.sizes().end())});
  const Mark mark = DownloadInto(std::move(value), host);
  return {.tensor = std::move(host), .mark = mark};
}

Mark CudaDevice::DownloadInto(at::Tensor value, at::Tensor host) {
  HEDDLE_CHECK(host.is_contiguous() && host.device().is_cpu(), "a download to no host's tensor");
  queues_->Harvest();
  queues_->Follow(Queue::kDown, Queue::kCompute);
  Queues::Kept kept{.tensors = {value, host}, .memory = {}};
  try {
    const c10::InferenceMode inference;
    const On on(*queues_, Queue::kDown);
    const at::Tensor whole = value.contiguous();
    kept.tensors.push_back(whole);
    copies_.Down(host.data_ptr(), whole.data_ptr(), whole.nbytes(), kept);
  } catch (const std::exception& error) {
    queues_->Fail(StatusOf(error));
  }
  return queues_->MarkOf(Queue::kDown, std::move(kept));
}

Result<std::shared_ptr<void>> CudaDevice::RegisterHost(std::span<std::byte> memory) {
  return LockInPlace(queues_->ordinal(), memory);
}

Result<std::shared_ptr<ExportedMemory>> CudaDevice::Export(size_t bytes) {
  return ExportMemory(queues_->ordinal(), bytes);
}

void CudaDevice::Await(const Mark& mark) {
  queues_->Await(Queue::kCompute, EventOf(mark));
}

Status CudaDevice::Drain(Deadline deadline) {
  return queues_->Drain(deadline);
}

// What tensors take, and sums among cards. The allocator keeps more, and the driver's context about
// half a GiB.
int64_t CudaDevice::memory_in_use() const {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(Index()).allocated_bytes[0].current +
         peers_.in_use();
}

int64_t CudaDevice::memory_peak() const {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(Index()).allocated_bytes[0].peak +
         peers_.in_use();
}

void CudaDevice::ForgetPeak() {
  c10::cuda::CUDACachingAllocator::resetPeakStats(Index());
}

c10::DeviceIndex CudaDevice::Index() const {
  return static_cast<c10::DeviceIndex>(queues_->ordinal());
}

}  // namespace heddle::runtime::cuda
