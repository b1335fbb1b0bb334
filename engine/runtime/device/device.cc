#include "engine/runtime/device/device.h"

#include "engine/machine/device_choice.h"
#include "engine/runtime/device/cpu_device.h"

namespace heddle::runtime {

Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  static_assert(!machine::kThisBuild.cuda, "a card needs a device here");
  HEDDLE_RETURN_IF_ERROR(machine::ChooseDevice(name).status());
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

}  // namespace heddle::runtime
