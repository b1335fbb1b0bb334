/// \file
/// The trial of memory of other devices between two workers: neither a driver's answer nor a
/// registration says that the bytes arrive.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace heddle::comm {

/// Implements Endpoint::TryDeviceMemory.
Status TryPair(
    Communicator& group, int peer, uint64_t tag, const DeviceTrial& trial, Deadline deadline);

}  // namespace heddle::comm
