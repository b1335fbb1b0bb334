/// \file
/// Element types of logical tensors.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace heddle {

enum class DType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2, kF64 = 3, kI32 = 4, kI64 = 5, kU8 = 6 };

/// Bytes of an element.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// The type's name: "fp32", "bf16", "fp16", "fp64", "int32", "int64" or "uint8".
std::string_view DTypeName(DType dtype);

/// The type of a name of DTypeName. Errors: kInvalidArgument (another name).
Result<DType> ParseDType(std::string_view name);

}  // namespace heddle
