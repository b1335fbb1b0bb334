/// \file
/// Tensors of messages and sums, in memory that other workers or network devices access directly
/// (comm::Endpoint::AllocateShared), and with which the worker's device exchanges values directly
/// (Device::RegisterHost). The memory is reused from step to step, so that it is mapped and
/// registered once.
#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "engine/graph/graph.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// A pool of shared memory for tensors. Thread: any.
class SharedTensors {
 public:
  /// Creates a pool for copies from and to `device`, whose memory comes from `endpoint`. Both
  /// outlive it.
  SharedTensors(comm::Endpoint& endpoint, Device& device);
  /// The memory stays until the last tensor is gone.
  ~SharedTensors();
  SharedTensors(const SharedTensors&) = delete;
  SharedTensors& operator=(const SharedTensors&) = delete;

  /// Returns an uninitialised contiguous CPU tensor. It is a Device::HostBuffer if it has fewer
  /// than program::kLeastSharedBytes bytes, or if no shared memory is to be had, which is logged
  /// once. The tensor's memory is reused when its last reference is gone, and freed with the last
  /// tensor and the pool. Memory that the device does not register is used all the same, which is
  /// logged once: copies from and to it are slower.
  at::Tensor Empty(const graph::TensorType& type);

 private:
  class Pool;
  Device& device_;
  std::shared_ptr<Pool> pool_;
};

}  // namespace heddle::runtime
