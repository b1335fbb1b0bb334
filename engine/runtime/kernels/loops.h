/// \file
/// From ATen tensors on a CPU to the loops in simd/: element types, pointers, and rows cut over
/// libtorch's threads. Every loop works row by row (or column by column), so the cut changes no
/// bit.
#pragma once

#include <algorithm>
#include <utility>

#include <ATen/Parallel.h>

#include "engine/runtime/kernel_registry.h"
#include "engine/runtime/kernels/common.h"
#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::runtime {

/// Whether this tensor's kernel runs in the CPU's own loops.
inline bool UsesLoops(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return tensor.device().is_cpu() && !PrefersPlainAten() &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kDouble);
}

/// Calls body with a value of the element type: float, simd::Bf16 or double.
template <typename Body>
void WithElement(const at::Tensor& tensor, const Body& body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return body(float{});
    case at::kBFloat16:
      return body(simd::Bf16{});
    default:
      return body(double{});
  }
}

template <typename T>
T* Data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}
template <typename T>
using Wide = typename simd::WideOf<T>::Type;

/// Elements that one thread takes at least: below it, waking another costs more than it saves.
constexpr int64_t kGrainElements = 16384;

/// Calls body(begin, end) over [0, rows), each row of `row_elements` elements, on libtorch's
/// threads.
template <typename Body>
void ParallelRows(int64_t rows, int64_t row_elements, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, row_elements));
  at::parallel_for(0, rows, grain, body);
}

/// Calls body(begin, end) over [0, columns) in multiples of 64 columns of `rows` elements each.
template <typename Body>
void ParallelColumns(int64_t columns, int64_t rows, const Body& body) {
  constexpr int64_t kUnit = 64;
  ParallelRows((columns + kUnit - 1) / kUnit, kUnit * rows, [&](int64_t begin, int64_t end) {
    body(begin * kUnit, std::min(end * kUnit, columns));
  });
}

/// Calls body(begin, end) over [0, count) in multiples of 1024 elements.
template <typename Body>
void ParallelElements(int64_t count, const Body& body) {
  constexpr int64_t kUnit = 1024;
  ParallelRows((count + kUnit - 1) / kUnit, kUnit, [&](int64_t begin, int64_t end) {
    body(begin * kUnit, std::min(end * kUnit, count));
  });
}

}  // namespace heddle::runtime
