/// \file
/// The messages of one worker's step: between values on its device and the communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/device_tensors.h"
#include "engine/runtime/exchange/task_queue.h"
#include "engine/runtime/shared_tensors.h"

namespace heddle::runtime {

/// Thread: one caller at a time.
class Messages {
 public:
  /// `group` null: none are sent or posted. `shared` null: all go through ordinary memory.
  /// `direct` null: none through the device's own. They outlive this.
  Messages(comm::Communicator* group, Device& device, SharedTensors* shared, DeviceTensors* direct);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Sends `value`, a tensor of `type` on the device, once it is computed and downloaded; waits for
  /// neither. If the download fails the group is aborted, because others wait for the message.
  /// Errors: those of earlier sends.
  Status Send(int peer, uint64_t tag, const at::Tensor& value, const graph::TensorType& type);
  /// Waits until all sends have ended; the first error.
  Status FinishSends();

  /// Makes room for a message, which Receive(`key`) waits for.
  void Post(size_t key, int peer, uint64_t tag, const graph::TensorType& type);
  size_t posted() const { return posted_.size(); }
  struct Received {
    at::Tensor tensor;
    bool on_device = false;  ///< Else in the host's memory.
    Time arrived;
  };
  /// Precondition: posted, and not received before. Errors: the communicator's, and the device's
  /// that aborted it.
  Result<Received> Receive(size_t key);

  /// After a failure: aborts the group, which is of no more use, and returns once no message is
  /// written to, or read from, the memory of this process.
  void Abandon(const Status& reason);
  /// Forgets what is left of a step that has ended.
  void Clear();

 private:
  struct Transfer {
    comm::Work work;
    at::Tensor tensor;  ///< Belongs to the work until it has ended.
    bool on_device = false;
  };

  bool IsPlaced(int peer, const graph::TensorType& type) const;
  /// Memory of the device for a message; undefined: it goes through the host's.
  at::Tensor Direct(int peer, const graph::TensorType& type) const;
  Copied Fetch(int peer, const at::Tensor& value, const graph::TensorType& type);
  Status SendLater(int peer, uint64_t tag, const Copied& message) HEDDLE_EXCLUDES(mutex_);
  void Begin(int peer, uint64_t tag, at::Tensor tensor) HEDDLE_EXCLUDES(mutex_);
  Status DropEnded() HEDDLE_EXCLUDES(mutex_);
  std::deque<Transfer> TakeSends() HEDDLE_EXCLUDES(mutex_);

  comm::Communicator* const group_;
  Device& device_;
  SharedTensors* const shared_;
  DeviceTensors* const direct_;
  std::map<size_t, Transfer> posted_;
  std::atomic<bool> abandoned_ = false;
  Mutex mutex_;
  std::deque<Transfer> sends_ HEDDLE_GUARDED_BY(mutex_);
  Status copy_status_ HEDDLE_GUARDED_BY(mutex_);  ///< The error of a failed download.
  std::unique_ptr<TaskQueue> later_;  ///< Made for the first value whose download has not ended.
};

}  // namespace heddle::runtime
