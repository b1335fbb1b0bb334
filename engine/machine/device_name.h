/// \file
/// The names of devices in job files and on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle::machine {

/// A device by its name.
struct DeviceName {
  enum class Kind : uint8_t {
    kCpu,   ///< The processor.
    kCuda,  ///< The NVIDIA card with the number `index`.
    kAuto,  ///< Any card that can be used, else the processor.
  };
  static constexpr int kAnyCard = -1;
  Kind kind = Kind::kCpu;
  int index = 0;  ///< The number of a card, as `nvidia-smi` counts them, or kAnyCard.

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

/// Returns what "cpu", "cuda" (any card), "cuda:N" or "auto" names. Errors: kInvalidArgument for
/// other words.
Result<DeviceName> ParseDeviceName(std::string_view text);

/// Returns the name that ParseDeviceName reads: "cpu", "cuda", "cuda:0", "auto".
std::string DeviceNameText(const DeviceName& name);

}  // namespace heddle::machine
