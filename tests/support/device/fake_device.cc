#include "tests/support/device/fake_device.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/hash.h"
#include "engine/runtime/device/tensor.h"
#include "tests/support/device/fake_export.h"

namespace heddle::runtime::testing {
namespace {

/// A tensor over the same memory that does not keep it.
at::Tensor WithoutOwner(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
}

/// A tensor of the host and its use by a copy, which ends before the tensor goes.
struct Used {
  at::Tensor tensor;
  std::shared_ptr<void> use;
};

}  // namespace

FakeDevice::FakeDevice(const FakeOptions& options)
    : Device({.memory_cap_bytes = options.emulated_bytes},
             static_cast<int64_t>(options.memory_bytes),
             options.card),
      options_(options),
      memory_(std::make_shared<FakeMemory>(options.memory_bytes)),
      host_memory_(std::make_shared<FakeHostMemory>()),
      peers_(options, queues_),
      queues_(options, memory_, [this](Duration time) { clock().Add(time); }) {}

PeerMemory* FakeDevice::peer_memory() {
  return options_.has_peers ? &peers_ : nullptr;
}

at::Tensor FakeDevice::Empty(const graph::TensorType& type) {
  at::Tensor value = memory_->Empty(type);
  if (Has(Fault::kMemoryKept)) {
    kept_.push_back(value);
  }
  return value;
}

at::Tensor FakeDevice::HostBuffer(const graph::TensorType& type) {
  if (Has(Fault::kBufferTwice) && last_buffer_.defined() &&
      static_cast<int64_t>(last_buffer_.nbytes()) >= type.bytes()) {
    return HostView(BytesOf(last_buffer_).first(static_cast<size_t>(type.bytes())), type);
  }
  at::Tensor buffer = host_memory_->Buffer(type);
  if (Has(Fault::kBufferTwice)) {
    last_buffer_ = buffer;
  }
  return buffer;
}

Device::Outputs FakeDevice::Compute(std::function<Outputs()> work, const OutputTypes& types) {
  Outputs outputs;
  for (const graph::TensorType* type : types) {
    outputs.push_back(Empty(*type));
  }
  const size_t kept = outputs.size() - (Has(Fault::kOutputsLost) ? 1 : 0);
  PutWork(/*counted=*/true, [this, work = std::move(work), outputs, kept] {
    const Outputs computed = work();
    if (computed.size() != outputs.size()) {
      return Violate(fmt::format("{} outputs, {} expected", computed.size(), outputs.size()));
    }
    for (size_t i = 0; i < kept; ++i) {
      if (computed[i].sizes() != outputs[i].sizes() ||
          computed[i].scalar_type() != outputs[i].scalar_type()) {
        return Violate(fmt::format("output {} has another type than was said", i));
      }
      outputs[i].copy_(computed[i]);
    }
  });
  return outputs;
}

void FakeDevice::Update(std::function<void()> work) {
  PutWork(/*counted=*/true, std::move(work));
}

void FakeDevice::Prepare(std::function<void()> work) {
  PutWork(/*counted=*/Has(Fault::kCountsPreparation), std::move(work));
}

Result<std::vector<Duration>> FakeDevice::Measure(const std::vector<std::function<void()>>& works) {
  const auto durations = std::make_shared<std::vector<Duration>>();
  for (const auto& work : works) {
    Prepare([work, durations] {
      const Time begun = Now();
      work();
      durations->push_back(Now() - begun);
    });
  }
  HEDDLE_RETURN_IF_ERROR(Drain(After(kLongestWait)));
  return *durations;
}

void FakeDevice::PutWork(bool counted, std::function<void()> run) {
  if (counted && Has(Fault::kCountsLaunches)) {
    clock().Add(Duration(1));
  }
  queues_.Put(Queue::kCompute, counted && !Has(Fault::kCountsLaunches), std::move(run));
  if (late_ != nullptr) {
    queues_.Await(std::exchange(late_, nullptr));
  }
}

Copied FakeDevice::Upload(at::Tensor host) {
  if (Has(Fault::kUploadIsTheHost)) {
    return {.tensor = std::move(host), .mark = {}};
  }
  at::Tensor value = memory_->Empty(
      {*FromScalarType(host.scalar_type()), Shape(host.sizes().begin(), host.sizes().end())});
  const uint64_t hash = Hash64(std::span<const std::byte>(BytesOf(host)));
  const Used source{.tensor = Has(Fault::kUploadSourceFreed) ? WithoutOwner(host) : host,
                    .use = host_memory_->Begin({BytesOf(host), FakeHostMemory::Access::kRead})};
  const OperationPtr copy = queues_.Put(Queue::kUp, false, [this, source, value, hash] {
    const std::span<const std::byte> from = BytesOf(source.tensor);
    if (Hash64(from) != hash) {
      Violate("the host changed a tensor before its upload had ended");
    }
    Copy(from, BytesOf(value), Fault::kUploadSkipped, Fault::kUploadHalf);
  });
  const Mark mark = Has(Fault::kUploadMarkEndsAtOnce) ? Mark() : MarkOf(queues_, copy);
  if (Has(Fault::kUploadMarkEndsAtOnce)) {
    Await(MarkOf(queues_, copy));
  }
  return {.tensor = std::move(value), .mark = mark};
}

Copied FakeDevice::Download(at::Tensor value) {
  if (Has(Fault::kDownloadIsTheDevice)) {
    return {.tensor = std::move(value), .mark = {}};
  }
  at::Tensor host = HostBuffer(
      {*FromScalarType(value.scalar_type()), Shape(value.sizes().begin(), value.sizes().end())});
  const Mark mark = DownloadInto(std::move(value), host);
  return {.tensor = std::move(host), .mark = mark};
}

Mark FakeDevice::DownloadInto(at::Tensor value, at::Tensor host) {
  if (!Has(Fault::kDownloadSkipped)) {
    Poison(BytesOf(host));
  }
  const Used target{.tensor = Has(Fault::kDownloadTargetFreed) ? WithoutOwner(host) : host,
                    .use = host_memory_->Begin({BytesOf(host), FakeHostMemory::Access::kWrite})};
  const at::Tensor source = Has(Fault::kDownloadSourceFreed) ? WithoutOwner(value) : value;
  const OperationPtr copy = queues_.Put(Queue::kDown, false, [this, source, target] {
    const std::span<std::byte> to = BytesOf(target.tensor);
    if (!Has(Fault::kDownloadSkipped) && !IsPoisoned(to)) {
      Violate("the host changed a tensor before its download had ended");
    }
    const at::Tensor whole = source.contiguous();
    Copy(BytesOf(whole), to, Fault::kDownloadSkipped, Fault::kDownloadHalf);
  });
  if (Has(Fault::kMarkEndsAtOnce)) {
    return {};
  }
  if (Has(Fault::kMarkOfCompute)) {
    const OperationPtr compute = queues_.Newest(Queue::kCompute);
    return compute == nullptr ? Mark() : MarkOf(queues_, compute);
  }
  return MarkOf(queues_, copy);
}

Result<std::shared_ptr<void>> FakeDevice::RegisterHost(std::span<std::byte> memory) {
  if (!options_.registers) {
    return ResourceExhaustedError("the device registers no memory");
  }
  return host_memory_->Register(memory);
}

Result<std::shared_ptr<ExportedMemory>> FakeDevice::Export(size_t bytes) {
  if (!options_.exports) {
    return UnimplementedError("the device exports no memory");
  }
  auto made = std::make_shared<FakeExport>(bytes, options_.flushes);
  memory_->Add(made);
  return std::shared_ptr<ExportedMemory>(std::move(made));
}

Mark FakeDevice::Computed() {
  OperationPtr newest = queues_.Newest(Queue::kCompute);
  return newest == nullptr ? Mark() : MarkOf(queues_, std::move(newest));
}

void FakeDevice::Copy(std::span<const std::byte> from,
                      std::span<std::byte> to,
                      Fault skipped,
                      Fault half) {
  const bool lost = ++copies_ == options_.lost_in_copy;
  if (lost) {
    queues_.Fail(InternalError("the device is gone"));
  }
  if (!Has(skipped)) {
    std::ranges::copy(from.first(lost || Has(half) ? from.size() / 2 : from.size()), to.begin());
  }
}

void FakeDevice::Await(const Mark& mark) {
  OperationPtr operation = OperationOf(mark);
  if (operation == nullptr || Has(Fault::kAwaitForgotten)) {
    return;
  }
  if (Has(Fault::kAwaitLate)) {
    late_ = std::move(operation);
    return;
  }
  queues_.Await(std::move(operation));
}

Status FakeDevice::Drain(Deadline deadline) {
  return queues_.Drain(deadline);
}

int64_t FakeDevice::memory_in_use() const {
  return memory_->in_use() + peers_.in_use();
}

int64_t FakeDevice::memory_peak() const {
  return memory_->peak() + peers_.in_use();
}

void FakeDevice::ForgetPeak() {
  memory_->ForgetPeak();
}

void FakeDevice::Violate(std::string what) {
  const MutexLock lock(mutex_);
  violations_.push_back(std::move(what));
}

std::vector<std::string> FakeDevice::violations() const {
  std::vector<std::string> all = host_memory_->violations();
  const MutexLock lock(mutex_);
  all.insert(all.end(), violations_.begin(), violations_.end());
  return all;
}

}  // namespace heddle::runtime::testing
