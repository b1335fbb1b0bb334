#include "engine/runtime/device/device.h"

#include <charconv>

#include <ATen/ATen.h>

#include "base/check.h"

namespace heddle::runtime {

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kF64:
      return at::kDouble;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kU8:
      return at::kByte;
  }
  HEDDLE_CHECK(false, "element type {}", static_cast<int>(dtype));
}

Result<DType> FromScalarType(at::ScalarType type) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8}) {
    if (ToScalarType(dtype) == type) {
      return dtype;
    }
  }
  return InvalidArgumentError("element type {} is not one of Heddle's", c10::toString(type));
}

Result<c10::Device> OpenDevice(std::string_view name) {
  if (name == "cpu") {
    return c10::Device(c10::kCPU);
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
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
  try {
    at::empty({1}, at::TensorOptions(device));
  } catch (const std::exception&) {
    return UnimplementedError("device '{}': this machine or this libtorch has no such device",
                              name);
  }
  return device;
}

}  // namespace heddle::runtime
