#include "tests/support/device/contract.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "base/mutex.h"
#include "base/random.h"
#include "engine/runtime/device/peer_memory.h"
#include "engine/runtime/device/tensor.h"

namespace heddle::runtime::testing {
namespace {

// Of waits that have to end well; a device that needs it has lost something.
constexpr Duration kPatience = std::chrono::seconds(20);

/// Work that ends when it is told to, or after a while.
class Gate {
 public:
  void Pass() {
    const MutexLock lock(mutex_);
    for (const Deadline deadline = After(std::chrono::seconds(5)); !open_ && Now() < deadline;) {
      changed_.WaitUntil(mutex_, deadline);
    }
  }
  void Open() {
    const MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ HEDDLE_GUARDED_BY(mutex_) = false;
};

class Trial {
 public:
  Trial(Device& device, uint64_t seed, InQueue in_queue)
      : device_(device),
        random_(seed),
        in_queue_(std::move(in_queue)) {}

  std::vector<std::string> Run() {
    const c10::InferenceMode inference;
    ValuesComeBack();  // Whatever a device makes with its first copies is there after them.
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    const int64_t before = device_.memory_in_use();
    MarksWait();
    for (int round = 0; round < 6; ++round) {
      ValuesComeBack();
      WorksKeepTheirOrder();
      AllOutputsAreKept();
      SourcesMayGo();
      TargetsMayBeGiven();
      BuffersAreApart();
      RegisteredMemoryServes();
      UploadsAreCopies();
      PeersMemoryServes();
      DrainWaitsForAll();
    }
    WorksCountWhenTheyEnd();
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    Expect(device_.memory_in_use() == before, "freed memory still counts");
    PeaksStay();
    return std::move(broken_);
  }

 private:
  void PeaksStay() {
    device_.ForgetPeak();
    const int64_t before = device_.memory_peak();
    constexpr int64_t kElements = 1 << 20;
    device_.Empty({.dtype = DType::kF32, .shape = {kElements}});
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    const int64_t peak = device_.memory_peak();
    Expect(peak >= device_.memory_in_use(), "a peak is less than what is in use");
    Expect(peak >= before + 4 * kElements, "a peak does not count what was freed");
    device_.ForgetPeak();
    Expect(device_.memory_peak() == device_.memory_in_use(), "a peak is not forgotten");
  }

  void Expect(bool kept, const std::string& what) {
    if (!kept && std::ranges::find(broken_, what) == broken_.end()) {
      broken_.push_back(what);
    }
  }

  graph::TensorType Floats(int64_t count) const { return {.dtype = DType::kF32, .shape = {count}}; }
  int64_t Size() { return random_.Between(2, 3000); }

  at::Tensor HostNumbers(int64_t count, float first) {
    at::Tensor host = device_.HostBuffer(Floats(count));
    auto* const values = static_cast<float*>(host.data_ptr());
    std::iota(values, values + count, first);
    return host;
  }
  bool AreNumbers(const at::Tensor& host, float first, float factor) const {
    const auto* const values = static_cast<const float*>(host.data_ptr());
    for (int64_t i = 0; i < host.numel(); ++i) {
      if (values[i] != (first + static_cast<float>(i)) * factor) {
        return false;
      }
    }
    return true;
  }
  at::Tensor OnDevice(at::Tensor host) {
    Copied copied = device_.Upload(std::move(host));
    device_.Await(copied.mark);
    return std::move(copied.tensor);
  }
  at::Tensor Times(const at::Tensor& value, float factor) {
    const graph::TensorType type = Floats(value.numel());
    return device_.Compute([value, factor] { return Device::Outputs{value * factor}; }, {&type})[0];
  }
  at::Tensor OnHost(at::Tensor value) {
    const Copied copied = device_.Download(std::move(value));
    Expect(copied.mark.Wait(After(kPatience)).ok(), "a download does not end");
    return copied.tensor;
  }

  // The device's compute waits at the gate.
  void PassInQueue(const std::shared_ptr<Gate>& gate) {
    device_.Update([in_queue = in_queue_, gate] {
      if (in_queue) {
        in_queue([gate] { gate->Pass(); });
      } else {
        gate->Pass();
      }
    });
  }

  void ValuesComeBack() {
    const int64_t count = Size();
    const at::Tensor value = OnDevice(HostNumbers(count, 1));
    Expect(AreNumbers(OnHost(value), 1, 1), "a value does not come back");
    Expect(AreNumbers(OnHost(Times(value, 2)), 1, 2), "a result does not come back");
  }

  void WorksKeepTheirOrder() {
    const at::Tensor value = OnDevice(HostNumbers(Size(), 0));
    for (const float factor : {2.0F, 3.0F}) {
      device_.Update([value] { value.add_(1); });
      device_.Update([value, factor] { value.mul_(factor); });
      device_.Prepare([value] { value.sub_(1); });
    }
    // ((x + 1) 2 - 1 + 1) 3 - 1
    const at::Tensor host = OnHost(value);
    const auto* const values = static_cast<const float*>(host.data_ptr());
    bool kept = true;
    for (int64_t i = 0; i < host.numel(); ++i) {
      kept = kept && values[i] == (static_cast<float>(i) + 1) * 6 - 1;
    }
    Expect(kept, "works do not keep their order");
  }

  void AllOutputsAreKept() {
    const at::Tensor value = OnDevice(HostNumbers(Size(), 1));
    const graph::TensorType type = Floats(value.numel());
    const Device::Outputs outputs = device_.Compute(
        [value] {
          return Device::Outputs{value * 2, value * 3};
        },
        {&type, &type});
    Expect(AreNumbers(OnHost(outputs[0]), 1, 2) && AreNumbers(OnHost(outputs[1]), 1, 3),
           "an output is lost");
  }

  // Whoever queued a copy lets go of both ends at once, and others take the memory.
  void SourcesMayGo() {
    const int64_t count = Size();
    std::vector<Copied> copies;
    for (int i = 0; i < 4; ++i) {
      at::Tensor value = Times(OnDevice(HostNumbers(count, static_cast<float>(i))), 5);
      copies.push_back(device_.Download(std::move(value)));
      Times(OnDevice(HostNumbers(count, 1000)), 7);
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      Expect(copies[i].mark.Wait(After(kPatience)).ok(), "a download does not end");
      Expect(AreNumbers(copies[i].tensor, static_cast<float>(i), 5), "a source was not kept");
    }
  }

  void TargetsMayBeGiven() {
    const int64_t count = Size();
    const at::Tensor value = Times(OnDevice(HostNumbers(2 * count, 1)), 3);
    const at::Tensor host = HostNumbers(count, 77);
    const Mark mark = device_.DownloadInto(value.narrow(0, count, count), host);
    Expect(mark.Wait(After(kPatience)).ok(), "a download does not end");
    Expect(AreNumbers(host, 1 + static_cast<float>(count), 3), "a given target is not filled");
    // Nobody keeps this target: what takes its memory next is not written to.
    const Mark late = device_.DownloadInto(value, device_.HostBuffer(Floats(2 * count)));
    const at::Tensor next = HostNumbers(2 * count, 5);
    Expect(late.Wait(After(kPatience)).ok(), "a download does not end");
    Expect(AreNumbers(next, 5, 1), "a copy writes to a buffer of others");
  }

  void BuffersAreApart() {
    const at::Tensor one = HostNumbers(Size(), 1);
    const at::Tensor other = HostNumbers(Size(), 500);
    Expect(AreNumbers(one, 1, 1) && AreNumbers(other, 500, 1), "two buffers share memory");
  }

  // Also while nobody but the copies refers to it, beside other memory, and again once it was
  // registered before.
  void RegisteredMemoryServes() {
    constexpr int64_t kElements = 1 << 14;
    const auto memory = std::make_shared<std::vector<float>>(2 * kElements);
    auto registration = device_.RegisterHost(std::as_writable_bytes(std::span(*memory)));
    Expect(registration.ok() || registration.status().code() == StatusCode::kResourceExhausted,
           "it refuses memory for another reason than that it has no room");
    const auto half = [&](int64_t first) {
      return at::from_blob(
          memory->data() + first * kElements, {kElements},
          [memory, kept = registration.ok() ? *registration : nullptr](void* /*data*/) {},
          at::kFloat);
    };
    const auto lower = half(0);
    Expect(device_.DownloadInto(Times(OnDevice(HostNumbers(kElements, 1)), 3), lower)
               .Wait(After(kPatience))
               .ok(),
           "a download does not end");
    Expect(AreNumbers(lower, 1, 3), "registered memory is not filled");
    const at::Tensor value = OnDevice(lower);
    const Mark mark = device_.DownloadInto(Times(value, 2), half(1));
    registration = std::shared_ptr<void>();
    Expect(mark.Wait(After(kPatience)).ok(), "a download does not end");
    Expect(AreNumbers(half(1), 1, 6), "registered memory does not come back");
    Expect(AreNumbers(lower, 1, 3), "a copy writes to registered memory of others");
  }

  void UploadsAreCopies() {
    if (device_.is_host()) {
      return;
    }
    const at::Tensor host = HostNumbers(Size(), 1);
    const Copied copied = device_.Upload(host);
    Expect(copied.mark.Wait(After(kPatience)).ok(), "an upload does not end");
    std::ranges::fill(BytesOf(host), std::byte{7});
    device_.Await(copied.mark);
    Expect(AreNumbers(OnHost(Times(copied.tensor, 2)), 1, 2), "an upload is no copy");
  }

  // Four addends of which one alone is left if they are added in their order.
  void PeersMemoryServes() {
    PeerMemory* const peers = device_.peer_memory();
    if (peers == nullptr) {
      return;
    }
    const int64_t count = Size();
    const auto bytes = static_cast<size_t>(4 * count);
    auto arena = peers->Allocate(4 * bytes);
    Expect(arena.ok() && !arena->handle.empty(), "it has no memory for peers");
    const auto gate = std::make_shared<Gate>();
    const auto values = std::make_shared<std::vector<at::Tensor>>();
    const at::Tensor small = OnDevice(HostNumbers(count, 1));
    const at::Tensor last = OnDevice(HostNumbers(count, 7));
    PassInQueue(gate);
    for (const float large : {0x1p40F, -0x1p40F}) {
      const graph::TensorType type = Floats(count);
      values->push_back(device_.Compute(
          [small, large] { return Device::Outputs{at::full_like(small, large)}; }, {&type})[0]);
    }
    values->insert(values->begin(), Times(small, 1));
    values->push_back(Times(last, 1));
    std::vector<PeerMemory::Stretch> put;
    PeerMemory::Addition addition{
        .additions = AdditionOrder(std::vector<TreeNode>{{0, 0}, {0, 1}, {0, 2}, {0, 4}}),
        .sum = arena->memory.get(),
        .elements = count};
    for (const at::Tensor& value : *values) {
      std::byte* const to = arena->memory.get() + put.size() * bytes;
      put.push_back(
          {.from = static_cast<const std::byte*>(value.data_ptr()), .to = to, .bytes = bytes});
      addition.addends.push_back(to);
    }
    const auto kept = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        values, arena->memory);
    const Mark copied = peers->Copy(device_.Computed(), put, kept);
    Expect(!copied.Ended(), "a mark of peers ends before its copy");
    gate->Open();
    Expect(copied.Wait(After(kPatience)).ok() && copied.Ended(), "a copy of peers does not end");
    Expect(peers->Add(addition, kept).Wait(After(kPatience)).ok(), "a sum of peers does not end");
    const at::Tensor sum = device_.Empty(Floats(count));
    device_.Await(peers->Copy(device_.Computed(),
                              {{.from = arena->memory.get(),
                                .to = static_cast<std::byte*>(sum.data_ptr()),
                                .bytes = bytes}},
                              kept));
    Expect(AreNumbers(OnHost(sum), 7, 1), "a sum of peers is another one");
  }

  // On a device whose works end with the call there is nothing to wait for.
  void MarksWait() {
    if (device_.is_host()) {
      return;
    }
    const auto gate = std::make_shared<Gate>();
    const at::Tensor value = OnDevice(HostNumbers(Size(), 1));
    PassInQueue(gate);
    const Copied copied = device_.Download(value);
    Expect(copied.mark.Wait(Now()).code() == StatusCode::kDeadlineExceeded,
           "a wait does not end at its deadline");
    Expect(!copied.mark.Ended(), "a mark ends before its copy");
    gate->Open();
    Expect(copied.mark.Wait(After(kPatience)).ok() && copied.mark.Ended(), "a mark does not end");
    Expect(AreNumbers(copied.tensor, 1, 1), "a mark ends before its copy");
  }

  void DrainWaitsForAll() {
    const at::Tensor value = Times(OnDevice(HostNumbers(Size(), 1)), 2);
    const Copied down = device_.Download(value);
    const Copied up = device_.Upload(HostNumbers(Size(), 1));
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    Expect(down.mark.Ended() && up.mark.Ended(), "something is left after Drain");
  }

  void WorksCountWhenTheyEnd() {
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    const int64_t before = device_.clock().works();
    const auto gate = std::make_shared<Gate>();
    device_.is_host() ? device_.Update([] {}) : PassInQueue(gate);
    device_.Prepare([] {});
    Expect(device_.is_host() || device_.clock().works() == before, "a work counts before it ends");
    gate->Open();
    Times(OnDevice(HostNumbers(Size(), 1)), 2);
    Expect(device_.Drain(After(kPatience)).ok(), "it cannot be drained");
    Expect(device_.clock().works() == before + 2, "other works count than those of the step");
    Expect(device_.clock().TakeBusy() > Duration{}, "works take no time");
  }

  Device& device_;
  Random random_;
  const InQueue in_queue_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> BrokenPromises(Device& device, uint64_t seed, const InQueue& in_queue) {
  return Trial(device, seed, in_queue).Run();
}

}  // namespace heddle::runtime::testing
