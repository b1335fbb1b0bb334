/// \file
/// A bias of the wide type, added to rows in place: linear's, and that of add_bias.
#pragma once

#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {

/// rows [R, N] += bias [N], rounded to the rows' type.
inline void AddBiasTo(const at::Tensor& rows, const at::Tensor& bias) {
  if (!UsesLoops(rows)) {
    rows.add_(bias);
    return;
  }
  const int64_t dim = rows.size(1);
  WithElement(rows, [&](auto element) {
    using T = decltype(element);
    ParallelRows(rows.size(0), dim, [&](int64_t begin, int64_t end) {
      simd::Loops<T>().add_bias(Data<T>(rows) + begin * dim, Data<Wide<T>>(bias), end - begin, dim);
    });
  });
}

}  // namespace heddle::runtime
