#include "engine/runtime/tensor.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "engine/runtime/device/device.h"

namespace heddle::runtime {

at::Tensor EmptyTensor(const graph::TensorType& type) {
  return at::empty(type.shape, at::TensorOptions().dtype(ToScalarType(type.dtype)));
}

std::span<std::byte> BytesOf(const at::Tensor& tensor) {
  HEDDLE_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(),
               "bytes of a strided or device tensor");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace heddle::runtime
