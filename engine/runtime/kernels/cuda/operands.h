/// \file
/// From ATen tensors on a card to the launchers of launch.h. Thread: any.
#pragma once

#include <cstdint>

#include "engine/runtime/kernels/common.h"
#include "engine/runtime/kernels/cuda/code/launch.h"

namespace heddle::runtime::cuda {

/// The stream of the calling thread.
Stream CurrentStream();
/// Throws libtorch's exception if the kernels that were launched last could not be.
void CheckLaunch();

/// The kernel of all devices, for what a card has no own form of.
Tensors Plain(std::string_view op,
              const graph::Node& node,
              Inputs in,
              const KernelContext& context);

/// Whether the launchers take the first `values` inputs as values of one type, and the others as
/// they are: the element types, and memory that packs of 16 bytes may be read from.
bool Fit(Inputs inputs, size_t values);

/// Precondition: Fit.
inline Type TypeOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? Type::kBf16 : Type::kF32;
}
/// The tensor as rows of its last dimension.
inline RowShape RowsOf(const at::Tensor& tensor) {
  const int64_t dim = tensor.size(-1);
  return {.type = TypeOf(tensor), .rows = tensor.numel() / dim, .dim = dim};
}

template <typename T>
T* DataOf(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// Registers `kernel` for the operator `op` on cards.
#define HEDDLE_REGISTER_CUDA_KERNEL(op, kernel)                                  \
  static const ::heddle::runtime::KernelRegistration cuda_registration_of_##op { \
#op, at::kCUDA, kernel                                                       \
  }

}  // namespace heddle::runtime::cuda
