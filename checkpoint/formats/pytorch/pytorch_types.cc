#include "checkpoint/formats/pytorch/pytorch_types.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace heddle::checkpoint {

namespace {

constexpr std::array kTypes = {
    PytorchType{"FloatStorage", "float32", 4, DType::kF32},
    PytorchType{"DoubleStorage", "float64", 8, DType::kF64},
    PytorchType{"HalfStorage", "float16", 2, DType::kF16},
    PytorchType{"BFloat16Storage", "bfloat16", 2, DType::kBF16},
    PytorchType{"IntStorage", "int32", 4, DType::kI32},
    PytorchType{"LongStorage", "int64", 8, DType::kI64},
    PytorchType{"ByteStorage", "uint8", 1, DType::kU8},
    PytorchType{"CharStorage", "int8", 1, {}},
    PytorchType{"ShortStorage", "int16", 2, {}},
    PytorchType{"BoolStorage", "bool", 1, {}},
    PytorchType{"ComplexFloatStorage", "complex64", 8, {}},
    PytorchType{"ComplexDoubleStorage", "complex128", 16, {}},
    PytorchType{"QInt8Storage", "qint8", 1, {}},
    PytorchType{"QUInt8Storage", "quint8", 1, {}},
    PytorchType{"QInt32Storage", "qint32", 4, {}},
    // Bytes whose type the tensor brings.
    PytorchType{"UntypedStorage", "", 1, {}},
    PytorchType{"TypedStorage", "", 1, {}},
    PytorchType{"", "complex32", 4, {}},
    PytorchType{"", "uint16", 2, {}},
    PytorchType{"", "uint32", 4, {}},
    PytorchType{"", "uint64", 8, {}},
    PytorchType{"", "float8_e4m3fn", 1, {}},
    PytorchType{"", "float8_e4m3fnuz", 1, {}},
    PytorchType{"", "float8_e5m2", 1, {}},
    PytorchType{"", "float8_e5m2fnuz", 1, {}},
    PytorchType{"", "float8_e8m0fnu", 1, {}},
};

const PytorchType* Find(std::string_view PytorchType::*field, std::string_view value) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& type) { return type.*field == value; });
  return value.empty() || found == kTypes.end() ? nullptr : found;
}

}  // namespace

const PytorchType* FindPytorchStorage(std::string_view storage) {
  return Find(&PytorchType::storage, storage);
}

const PytorchType* FindPytorchType(std::string_view name) {
  return Find(&PytorchType::name, name);
}

std::string_view PytorchStorageOf(DType dtype) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& type) { return type.dtype == dtype; });
  HEDDLE_CHECK(found != kTypes.end(), "no storage class for {}", DTypeName(dtype));
  return found->storage;
}

}  // namespace heddle::checkpoint
