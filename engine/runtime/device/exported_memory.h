/// \file
/// Memory of a device that network devices read and write directly, by a dma-buf of its driver
/// (Device::Export).
#pragma once

#include <cstddef>
#include <span>

#include <ATen/core/Tensor.h>

#include "base/status.h"

namespace heddle::runtime {

/// Exported memory, which is freed with the object. Thread: any.
class ExportedMemory {
 public:
  virtual ~ExportedMemory() = default;
  ExportedMemory() = default;
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  /// The dma-buf, in which the memory begins at 0.
  virtual int fd() const = 0;
  /// The memory by the device's addresses.
  virtual std::span<std::byte> bytes() const = 0;
  /// libtorch's name for where tensors in the memory are.
  virtual at::Device place() const = 0;
  /// Waits until compute that is queued from now on sees all that network devices have written.
  /// Takes some microseconds. Errors: the device's.
  virtual Status Flush() = 0;
};

}  // namespace heddle::runtime
