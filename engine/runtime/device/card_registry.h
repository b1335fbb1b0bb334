/// \file
/// Which part of this build drives cards. A build without CUDA has none, and links none.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

/// Opens the card with this number, as nvidia-smi counts them. Errors: kInvalidArgument (CUDA cannot
/// use it), the card's.
using OpenCard = Result<std::unique_ptr<Device>> (*)(int number, const DeviceOptions& options);

/// Registers what opens cards, for the life of the process; defined once, at namespace scope.
struct CardRegistration {
  explicit CardRegistration(OpenCard open);
};

}  // namespace heddle::runtime
