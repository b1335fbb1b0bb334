#include "engine/runtime/device/device.h"

#include <algorithm>

#include "base/check.h"
#include "engine/machine/device_choice.h"
#include "engine/runtime/device/card_registry.h"
#include "engine/runtime/device/cpu_device.h"

namespace heddle::runtime {
namespace {

// How often a wait for a mark checks whether it was abandoned.
constexpr Duration kSlice = std::chrono::milliseconds(100);

OpenCard open_card = nullptr;  // Set by static initialisers only, so it needs no lock.

}  // namespace

CardRegistration::CardRegistration(OpenCard open) {
  HEDDLE_CHECK(open_card == nullptr, "cards are registered twice");
  open_card = open;
}

int64_t Device::memory_cap() const {
  const int64_t emulated = emulated_memory_.load();
  if (emulated == 0 || memory_bytes_ == 0) {
    return std::max(emulated, memory_bytes_);
  }
  return std::min(emulated, memory_bytes_);
}

Status WaitUnless(const std::atomic<bool>& abandoned, const Mark& mark) {
  for (const Deadline deadline = After(kLongestWait); !abandoned.load();) {
    Status status = mark.Wait(std::min(After(kSlice), deadline));
    if (status.code() != StatusCode::kDeadlineExceeded || Now() >= deadline) {
      return status;
    }
  }
  return CancelledError("the step was abandoned");
}

Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const machine::DeviceName chosen, machine::ChooseDevice(name));
  if (chosen.kind == machine::DeviceName::Kind::kCuda) {
    HEDDLE_CHECK(open_card != nullptr, "this program does not link what drives cards");
    return open_card(chosen.index, options);
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

}  // namespace heddle::runtime
