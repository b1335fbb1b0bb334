#include "engine/runtime/device/tensor.h"

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

at::Tensor HostTensor(const graph::TensorType& type) {
  return at::empty(type.shape, at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

at::Tensor HostView(std::span<std::byte> bytes, const graph::TensorType& type) {
  HEDDLE_CHECK(static_cast<int64_t>(bytes.size()) == type.bytes(), "{} bytes for {}", bytes.size(),
               graph::ToString(type));
  return at::from_blob(bytes.data(), type.shape,
                       at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

std::span<std::byte> BytesOf(const at::Tensor& tensor) {
  HEDDLE_CHECK(tensor.device().is_cpu(), "bytes of a device tensor");
  return MemoryOf(tensor);
}

std::span<std::byte> MemoryOf(const at::Tensor& tensor) {
  HEDDLE_CHECK(tensor.is_contiguous(), "memory of a strided tensor");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace heddle::runtime
