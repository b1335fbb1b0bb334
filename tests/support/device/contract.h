/// \file
/// What every device has to keep to (engine/runtime/device/device.h), tried on one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/device/device.h"

namespace heddle::runtime::testing {

/// What the device does not keep, a line each; none: it keeps to all that is tried. The sizes that
/// are tried follow from `seed`. The device is idle before and after.
std::vector<std::string> BrokenPromises(Device& device, uint64_t seed);

}  // namespace heddle::runtime::testing
