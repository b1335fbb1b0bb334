/// \file
/// The device on which a worker computes. Work and copies are queued and end later; the host waits
/// where it needs their results and nowhere else. There is one order of compute, that of the calls;
/// copies run beside it.
///
/// What is queued uses tensors as they are when it runs, which is after all compute queued before
/// it. A device keeps every tensor that is still used. Errors come late: out of a Mark's Wait or of
/// Drain. They are final: a device that failed computes nothing right any more, and its process has
/// to end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/runtime/device/arithmetic.h"
#include "engine/runtime/device/device_clock.h"
#include "engine/runtime/device/exported_memory.h"

namespace heddle::runtime {

class PeerMemory;

/// A device that has not finished its queued work after this time counts as lost.
inline constexpr Duration kLongestWait = std::chrono::minutes(10);

/// A point in one of a device's queues: it has ended once everything queued before it has. Thread:
/// any.
class Mark {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool Ended() = 0;
    virtual Status Wait(Deadline deadline) = 0;
  };

  /// A mark that has ended, of a device that does everything at once.
  Mark() = default;
  explicit Mark(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// True if everything before the mark has ended, successfully or not. Does not block.
  bool Ended() const { return state_ == nullptr || state_->Ended(); }
  /// Blocks until the mark has ended. Errors: kDeadlineExceeded, the device's.
  Status Wait(Deadline deadline) const {
    return state_ == nullptr ? Status::Ok() : state_->Wait(deadline);
  }
  /// The state that the device gave; null if the device does everything at once.
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Blocks until `mark` has ended, or `abandoned` is true, which is looked at several times a
/// second. Errors: those of Mark::Wait with kLongestWait, and kCancelled if it was abandoned.
/// Thread: any.
Status WaitUnless(const std::atomic<bool>& abandoned, const Mark& mark);

/// The target of a copy, and when it is complete.
struct Copied {
  at::Tensor tensor;
  Mark mark;
};

struct DeviceOptions {
  double speed = 1;  ///< Emulated part of the device's speed, in (0, 1]; 1: not emulated.
  int64_t memory_cap_bytes = 0;  ///< Emulated memory; 0: all that there is.
};

/// Thread: Compute, Update, Prepare, Upload, Await and Empty from the thread that computes; the
/// rest from any.
class Device {
 public:
  using Outputs = std::vector<at::Tensor>;
  using OutputTypes = std::vector<const graph::TensorType*>;

  /// `memory_bytes`: what a worker may use of the device's memory; 0: unknown, unlimited. `card`:
  /// the card whose memory it is, by a name that no other card of the machine has; empty: the
  /// host's.
  explicit Device(const DeviceOptions& options, int64_t memory_bytes = 0, std::string card = "")
      : clock_(options.speed),
        memory_bytes_(memory_bytes),
        card_(std::move(card)),
        emulated_memory_(options.memory_cap_bytes) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// What decides the bits of its results. Devices with equal ones give the same bits.
  virtual Arithmetic arithmetic() const = 0;
  /// True if the device's tensors lie in the host's memory and are complete when a call returns, so
  /// that the host may read and write them.
  virtual bool is_host() const = 0;
  /// libtorch's name for where its tensors are, by which kernels are chosen (kernel.h).
  virtual at::DeviceType type() const { return at::kCPU; }

  /// An uninitialised contiguous tensor on the device.
  virtual at::Tensor Empty(const graph::TensorType& type) = 0;
  /// An uninitialised contiguous tensor in the host's memory, from which and to which copies are
  /// fast. Its memory serves again when nobody refers to it and no copy uses it.
  virtual at::Tensor HostBuffer(const graph::TensorType& type) = 0;

  /// Queues `work`, which computes tensors of `types` from others on the device, and returns them.
  virtual Outputs Compute(std::function<Outputs()> work, const OutputTypes& types) = 0;
  /// Queues `work`, which changes tensors on the device in place.
  virtual void Update(std::function<void()> work) = 0;
  /// Queues `work` like Update, but clock() does not count its time as the step's.
  virtual void Prepare(std::function<void()> work) = 0;

  /// Does `works` one after the other, waits for them, and returns how long the device took for
  /// each: from the end of the one before it, where work is queued. The step's clock does not count
  /// them, but where the device is the host and emulated they take as long as the clock says.
  /// Errors: the device's.
  virtual Result<std::vector<Duration>> Measure(
      const std::vector<std::function<void()>>& works) = 0;

  /// Queues a copy of `host`, a contiguous tensor in the host's memory, to the device; `host` stays
  /// as it is until the mark has ended. Compute sees the copy after Await alone.
  virtual Copied Upload(at::Tensor host) = 0;
  /// Queues a copy of `value`, a tensor on the device, to the host. It stays as it is until the
  /// mark has ended, and so does the copy as long as its owner may still read it: where the device
  /// is the host they are one tensor.
  virtual Copied Download(at::Tensor value) = 0;
  /// Queues a copy of `value` into `host`, a contiguous tensor in the host's memory of the value's
  /// shape and type.
  virtual Mark DownloadInto(at::Tensor value, at::Tensor host) = 0;
  /// Registers memory of the host that others own, such as a slab of shared memory, so that copies
  /// from and to it are as fast as those of a HostBuffer. The registration ends with the returned
  /// object: after the last copy that uses the memory, and before the memory is freed. Null: the
  /// device has no use for it. Errors: kResourceExhausted; copies then work, as from any memory.
  virtual Result<std::shared_ptr<void>> RegisterHost(std::span<std::byte> memory) = 0;
  /// Allocates at least `bytes` of the device's memory that network devices read and write
  /// directly, uninitialised. Null: the device has none. Errors: kUnimplemented (its driver does
  /// not export memory), kResourceExhausted.
  virtual Result<std::shared_ptr<ExportedMemory>> Export(size_t /*bytes*/) {
    return std::shared_ptr<ExportedMemory>();
  }
  /// A mark behind all compute that was queued. Thread: any.
  virtual Mark Computed() { return {}; }
  /// Its memory that other devices of the host read (peer_memory.h); null: they cannot.
  virtual PeerMemory* peer_memory() { return nullptr; }
  /// Compute that is queued from now on runs after `mark`.
  virtual void Await(const Mark& mark) = 0;
  /// Waits for all that was queued. Errors: kDeadlineExceeded, the device's.
  virtual Status Drain(Deadline deadline) = 0;

  /// Bytes of the device's memory that the process's tensors use; in the host's memory, also those
  /// of its other devices there.
  virtual int64_t memory_in_use() const = 0;
  /// The most bytes that memory_in_use() has been since the last ForgetPeak.
  virtual int64_t memory_peak() const = 0;
  /// Begins memory_peak() anew, at what is in use now.
  virtual void ForgetPeak() = 0;
  /// The card whose memory it uses, and which other workers may use, too; empty: none.
  const std::string& card() const { return card_; }
  /// Bytes of its memory that a worker may use if no other one does; 0: not limited.
  int64_t memory_bytes() const { return memory_bytes_; }
  /// The same, or what is emulated; 0: not limited.
  int64_t memory_cap() const;
  /// Emulates a memory of `bytes` from now on; 0: all that there is.
  void EmulateMemory(int64_t bytes) { emulated_memory_.store(bytes); }
  /// The clock, which counts the time of Compute and Update.
  DeviceClock& clock() { return clock_; }

 private:
  DeviceClock clock_;
  const int64_t memory_bytes_;
  const std::string card_;
  std::atomic<int64_t> emulated_memory_;
};

/// Opens the device with this name (engine/machine/device_name.h). Errors: kInvalidArgument (no
/// device has the name, or this machine or this build cannot use it).
Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options);

}  // namespace heddle::runtime
