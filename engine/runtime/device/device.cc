#include "engine/runtime/device/device.h"

#include <charconv>

#include "engine/runtime/device/cpu_device.h"

namespace heddle::runtime {

Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  if (name == "cpu") {
    return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
  }
  constexpr std::string_view kCuda = "cuda";
  int index = 0;
  if (name.substr(0, kCuda.size()) != kCuda) {
    return InvalidArgumentError("device '{}': expected cpu, cuda or cuda:N", name);
  }
  if (name.size() > kCuda.size()) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kCuda.size() + 1, end, index);
    if (name[kCuda.size()] != ':' || parsed.ec != std::errc() || parsed.ptr != end || index < 0) {
      return InvalidArgumentError("device '{}': expected cpu, cuda or cuda:N", name);
    }
  }
  return UnimplementedError("device '{}': this build computes on processors only", name);
}

}  // namespace heddle::runtime
