/// \file
/// What every device has to keep to (engine/runtime/device/device.h), tried on one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/runtime/device/device.h"

namespace heddle::runtime::testing {

/// Called within a work: has its argument run when the device's compute gets there, without which
/// what comes after the work does not run. Empty: works are called when they run.
using InQueue = std::function<void(std::function<void()>)>;

/// What the device does not keep, a line each; none: it keeps to all that is tried. The sizes that
/// are tried follow from `seed`. The device is idle before and after.
std::vector<std::string> BrokenPromises(Device& device,
                                        uint64_t seed,
                                        const InQueue& in_queue = {});

}  // namespace heddle::runtime::testing
