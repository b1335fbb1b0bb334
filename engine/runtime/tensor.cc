#include "engine/runtime/tensor.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace heddle::runtime {

at::ScalarType ScalarTypeOf(DType dtype) {
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

at::Tensor EmptyTensor(const graph::TensorType& type) {
  return at::empty(type.shape, at::TensorOptions().dtype(ScalarTypeOf(type.dtype)));
}

std::span<std::byte> BytesOf(const at::Tensor& tensor) {
  HEDDLE_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(),
               "bytes of a strided or device tensor");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace heddle::runtime
