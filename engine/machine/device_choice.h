/// \file
/// Which device of a machine a worker computes on, and why it cannot use another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/machine/cards.h"
#include "engine/machine/device_name.h"

namespace heddle::machine {

/// What a build of heddle-engine computes on beside the processor.
struct Support {
  bool cuda = false;    ///< NVIDIA cards.
  int cuda_major = 12;  ///< The version of CUDA; that of the oldest libtorch that may have one.
};

/// What this build computes on (HEDDLE_CUDA of CMake).
extern const Support kThisBuild;

/// Memory that has to be free on a card before a worker begins: the driver's context and the
/// workspaces of libraries take about as much.
inline constexpr int64_t kLeastFreeBytes = int64_t{1} << 30;

/// Returns why a worker cannot compute on the card number `index`; empty if it can.
std::string WhyNotCard(const Cards& cards, int index, const Support& build);

/// Returns the devices that workers of one machine compute on, by what each of them asks for, which
/// ChooseDevice accepts. Workers that leave the card open are spread: each gets the card that can be
/// used and that the fewest have, the first among equals, after all that name a card.
std::vector<DeviceName> SpreadDevices(const std::vector<DeviceName>& asked,
                                      const Cards& cards,
                                      const Support& build);

/// Returns the device that `asked` means on a machine with these cards: the processor or one card by
/// its number. `others`: how many workers of this machine ask for the same before this one. Errors:
/// kInvalidArgument (no card that it names can be used), with the reason.
Result<DeviceName> ChooseDevice(const DeviceName& asked,
                                const Cards& cards,
                                const Support& build,
                                int others = 0);

/// Returns this machine's cards if one of the names may mean a card, else none. If `auto` will mean
/// the processor because the cards' driver does not answer, a warning says so. Thread: any.
Cards FindCardsFor(const std::vector<DeviceName>& asked);

/// ChooseDevice for a name, on this machine, by this build. Errors: also those of ParseDeviceName.
/// Thread: any.
Result<DeviceName> ChooseDevice(std::string_view name, int others = 0);

}  // namespace heddle::machine
