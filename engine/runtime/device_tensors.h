/// \file
/// Tensors of messages in the memory of the worker's own device, from and to which RDMA devices
/// carry them directly (comm::Endpoint::ImportDeviceMemory), so that they need no copy in the host's
/// memory. Used with a peer only after a trial (comm::Endpoint::TryDeviceMemory). An end that has no
/// such tensor uses one of SharedTensors instead, whatever the other end uses.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/clock.h"
#include "comm/communicator.h"
#include "engine/graph/graph.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// Tensors of one generation's messages. Thread: that which computes.
class DeviceTensors {
 public:
  /// Both outlive it.
  DeviceTensors(comm::Endpoint& endpoint, Device& device);
  /// The memory stays until the last tensor is gone.
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  /// Tries with each of `peers`, ranks of `group`, whether device memory is used, and logs it. Both
  /// ends of a pair call it, with the same tag; `group` is used until this object goes. Errors:
  /// those of the communicator, not that a trial fails.
  Status Agree(comm::Communicator& group, std::vector<int> peers, uint64_t tag, Deadline deadline);

  /// Returns an uninitialised contiguous tensor on the device for a message of at least
  /// program::kLeastSharedBytes with `peer`. Its memory serves again when its last reference is gone
  /// and the compute has ended that was queued until then. Undefined: the message goes through the
  /// host's memory; if that is because memory failed to be registered, it is logged once.
  at::Tensor Empty(int peer, const graph::TensorType& type);
  /// Returns the status of a message for the step. A message that RDMA did not reach in the end,
  /// because the other end's memory could not be registered, is kUnavailable: the step is run again
  /// in another generation, and this process uses device memory no more, which is logged once.
  static Status StatusOf(const Status& message);
  /// Waits until compute sees what has arrived in `tensor`, one of Empty. Errors: the device's.
  Status Flush(const at::Tensor& tensor);

 private:
  class Pool;
  Status Try(int peer, uint64_t tag, Deadline deadline);
  Result<at::Tensor> Make(const graph::TensorType& type);

  comm::Endpoint& endpoint_;
  comm::Communicator* group_ = nullptr;
  Device& device_;
  std::set<int> peers_;  ///< Those with which the trial succeeded.
  std::shared_ptr<Pool> pool_;
};

}  // namespace heddle::runtime
