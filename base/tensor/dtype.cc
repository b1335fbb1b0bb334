#include "base/tensor/dtype.h"

#include <array>

namespace heddle {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"fp32",  "bf16",  "fp16", "fp64",
                                                    "int32", "int64", "uint8"};

}  // namespace

std::string_view DTypeName(DType dtype) {
  return kNames.at(static_cast<size_t>(dtype));
}

Result<DType> ParseDType(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<DType>(i);
    }
  }
  return InvalidArgumentError("unknown element type '{}'", name);
}

}  // namespace heddle
