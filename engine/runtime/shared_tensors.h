/// \file
/// Tensors for messages and sums: they live in memory that other workers, or their devices, reach
/// directly (comm::Endpoint::AllocateShared), and are used again from step to step, so that what is
/// registered for them stays in use.
#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

/// Thread: any.
class SharedTensors {
 public:
  /// Below it a copy costs less than to arrange for none.
  static constexpr size_t kLeastBytes = size_t{32} << 10;

  explicit SharedTensors(comm::Endpoint& endpoint);
  ~SharedTensors();
  SharedTensors(const SharedTensors&) = delete;
  SharedTensors& operator=(const SharedTensors&) = delete;

  /// An uninitialised contiguous CPU tensor. In ordinary memory when it has fewer than kLeastBytes,
  /// and when there is no other (logged once). Its memory is the next tensor's when its last
  /// reference goes, and goes back to the machine with the last tensor and this object.
  at::Tensor Empty(const graph::TensorType& type);

 private:
  class Pool;
  std::shared_ptr<Pool> pool_;
};

}  // namespace heddle::runtime
