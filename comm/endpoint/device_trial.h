/// \file
/// Whether RDMA carries messages between the memories of two workers' devices: tried once for a
/// pair of workers, before such messages are sent, because neither a driver's answer nor a
/// registration says that the bytes arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// A worker's memory for the trial, and how its device accesses it.
struct DeviceTrial {
  /// Imported memory (Endpoint::ImportDeviceMemory) of kTrialBytes; empty: the worker has none.
  std::span<std::byte> bytes = {};
  /// Copies kTrialBytes from the host to `bytes`, and returns once RDMA devices see them.
  std::function<Status(std::span<const std::byte> host)> write = {};
  /// Copies `bytes` to the host as the device sees them after a flush.
  std::function<Status(std::span<std::byte> host)> read = {};
};

/// Bytes of a trial's memory: two patterns of several pieces of RDMA and a rest.
inline constexpr size_t kTrialBytes = 2 * (size_t{128} + 1) << 10;

/// Sends a pattern from the memory of each worker's device to that of the other, and compares what
/// has arrived, on both traffic classes. Both ends call it, with the same tag. Ok at both ends, or
/// kUnimplemented at both, with the reason: then messages go through the host's memory. Further
/// errors: those of the communicator.
Status TryDeviceMemory(
    Communicator& group, int peer, uint64_t tag, const DeviceTrial& trial, Deadline deadline);

}  // namespace heddle::comm
