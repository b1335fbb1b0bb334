/// \file
/// The transport "placing": a local socket, and beside it direct placement between the memories of
/// one process, those of devices among them, as RDMA places them. The bytes go through the memory
/// files, never through the devices' addresses.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::comm::testing {

/// What goes wrong in all connections of the process.
struct PlacingFaults {
  enum class Refusal : uint8_t {
    kNone,
    kNew,  ///< No device memory is registered that was not before.
    kAll,  ///< Nor is any used that was.
  };
  std::atomic<Refusal> refuses = Refusal::kNone;
  std::atomic<int64_t> lasts = INT64_MAX;  ///< Of to_device; then all is refused.
  std::atomic<bool> loses = false;         ///< Bytes for device memory do not arrive.
  std::atomic<int64_t> to_device = 0;      ///< Bytes placed in device memory so far.
};

PlacingFaults& Placing();
/// Refuses all device memory to this thread.
void RefuseDeviceMemoryHere();

}  // namespace heddle::comm::testing
