#include "engine/machine/device_name.h"

#include <charconv>

namespace heddle::machine {

Result<DeviceName> ParseDeviceName(std::string_view text) {
  using Kind = DeviceName::Kind;
  constexpr std::string_view kNumbered = "cuda:";
  if (text == "cpu") {
    return DeviceName{.kind = Kind::kCpu};
  }
  if (text == "auto") {
    return DeviceName{.kind = Kind::kAuto};
  }
  if (text == "cuda") {
    return DeviceName{.kind = Kind::kCuda, .index = DeviceName::kAnyCard};
  }
  if (text.starts_with(kNumbered)) {
    int index = -1;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + kNumbered.size(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index >= 0) {
      return DeviceName{.kind = Kind::kCuda, .index = index};
    }
  }
  return InvalidArgumentError("expected cpu, cuda, cuda:N or auto, got '{}'", text);
}

std::string DeviceNameText(const DeviceName& name) {
  switch (name.kind) {
    case DeviceName::Kind::kCpu:
      return "cpu";
    case DeviceName::Kind::kCuda:
      return name.index == DeviceName::kAnyCard ? "cuda" : "cuda:" + std::to_string(name.index);
    case DeviceName::Kind::kAuto:
      break;
  }
  return "auto";
}

}  // namespace heddle::machine
