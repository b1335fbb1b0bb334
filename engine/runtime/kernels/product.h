/// \file
/// Matrix products of the compute type on 2-D tensors (transposed views are fine), in libtorch's
/// library.
#pragma once

#include "engine/runtime/kernels/common.h"
#include "engine/runtime/kernels/simd/simd.h"

namespace heddle::runtime {

/// Whether a bf16 product is better done in fp32: libtorch has oneDNN do it on a processor with
/// AVX-512 and above 16^3 multiplications only; otherwise it falls back to a loop that adds up in
/// bf16.
inline bool WidensProduct(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kSmall = 32 * 32 * 32;
  return a.scalar_type() == at::kBFloat16 && a.device().is_cpu() &&
         (!simd::HasFastBf16Products() || a.size(0) * a.size(1) * b.size(1) <= kSmall);
}

/// a b in the type of a.
inline at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  return WidensProduct(a, b) ? at::mm(Widen(a), Widen(b)).to(a.scalar_type()) : at::mm(a, b);
}

/// a b in the wide type. bf16 products are accumulated in fp32 inside the library, but it returns
/// them in bf16: one rounding of 2^-9 relative, as in PyTorch's autocast.
inline at::Tensor WideProduct(const at::Tensor& a, const at::Tensor& b) {
  return WidensProduct(a, b) ? at::mm(Widen(a), Widen(b)) : Widen(at::mm(a, b));
}

}  // namespace heddle::runtime
