/// \file
/// Which device of a machine a worker computes on, and why it cannot use another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/machine/cards.h"
#include "engine/machine/device_name.h"

namespace heddle::machine {

/// What a build of heddle-engine computes on beside the processor.
struct Support {
  bool cuda = false;  ///< NVIDIA cards.
};

/// What this build computes on (HEDDLE_CUDA of CMake).
extern const Support kThisBuild;

/// Memory that has to be free on a card before a worker begins: the driver's context and the
/// workspaces of libraries take about as much.
inline constexpr int64_t kLeastFreeBytes = int64_t{1} << 30;

/// Returns why a worker cannot compute on the card number `index`; empty if it can.
std::string WhyNotCard(const Cards& cards, int index, const Support& build);

/// Returns the device that `asked` means on a machine with these cards, which is never kAuto.
/// Errors: kInvalidArgument (the card that it names cannot be used), with the reason.
Result<DeviceName> ChooseDevice(const DeviceName& asked, const Cards& cards, const Support& build);

/// The same for a name, on this machine, by this build. Cards are looked for only if the name may
/// mean one. Errors: also those of ParseDeviceName. Thread: any.
Result<DeviceName> ChooseDevice(std::string_view name);

}  // namespace heddle::machine
