#include "engine/runtime/device/device.h"

#include <algorithm>

#include "engine/machine/device_choice.h"
#include "engine/runtime/device/cpu_device.h"

namespace heddle::runtime {
namespace {

// How often a wait for a mark checks whether it was abandoned.
constexpr Duration kSlice = std::chrono::milliseconds(100);

}  // namespace

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
  static_assert(!machine::kThisBuild.cuda, "a card needs a device here");
  HEDDLE_RETURN_IF_ERROR(machine::ChooseDevice(name).status());
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

}  // namespace heddle::runtime
