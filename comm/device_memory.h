/// \file
/// Memory of other devices, such as cards, that RDMA devices read and write directly
/// (Endpoint::ImportDeviceMemory), and how it is tried. No device is known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

namespace heddle::comm {

/// Memory of another device that its driver exports as a dma-buf.
struct DeviceMemory {
  int fd = -1;          ///< The dma-buf; the caller's, who may close it after the call.
  uint64_t offset = 0;  ///< Where the memory begins in the dma-buf; whole pages.
  /// The memory by its device's addresses, which no other memory of the process has. Never read or
  /// written by the host.
  std::span<std::byte> bytes;
};

/// A worker's memory for a trial (Endpoint::TryDeviceMemory), and how its device accesses it.
struct DeviceTrial {
  /// Imported memory of kTrialBytes; empty: the worker has none.
  std::span<std::byte> bytes = {};
  /// Copies kTrialBytes from the host to `bytes`, and returns once RDMA devices see them.
  std::function<Status(std::span<const std::byte> host)> write = {};
  /// Copies `bytes` to the host as the device sees them after a flush.
  std::function<Status(std::span<std::byte> host)> read = {};
};

/// Bytes of a trial's memory: two patterns of several pieces of RDMA and a rest.
inline constexpr size_t kTrialBytes = 2 * (size_t{128} + 1) << 10;

}  // namespace heddle::comm
