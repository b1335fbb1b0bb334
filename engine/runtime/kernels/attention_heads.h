/// \file
/// Plain ATen attention shared by the forward and the backward kernel: the path of devices that
/// have no loops of their own.
#pragma once

#include <cmath>
#include <limits>

#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {

/// [B, T, heads*d] as wide [B, heads, T, d]; each head repeated `copies` times in place (grouped
/// queries).
inline at::Tensor SplitHeads(const at::Tensor& tensor, int64_t heads, int64_t copies) {
  const int64_t batch = tensor.size(0);
  const int64_t length = tensor.size(1);
  const int64_t head_dim = tensor.size(2) / heads;
  at::Tensor split = Widen(tensor).view({batch, length, heads, head_dim}).transpose(1, 2);
  if (copies == 1) {
    return split;
  }
  return split.unsqueeze(2)
      .expand({batch, heads, copies, length, head_dim})
      .reshape({batch, heads * copies, length, head_dim});
}

/// [B, heads, T, d] as [B, T, heads*d] of `type`.
inline at::Tensor JoinHeads(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor joined = tensor.transpose(1, 2).to(type).contiguous();
  return joined.view({joined.size(0), joined.size(1), -1});
}

/// Scaled scores [B, H, T, T] of queries against keys, -inf where the key is later than the query.
inline at::Tensor CausalScores(const at::Tensor& query, const at::Tensor& key) {
  const int64_t length = query.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor later =
      at::ones({length, length}, query.options().dtype(at::kBool)).triu(/*diagonal=*/1);
  return (at::matmul(query, key.transpose(2, 3)) * scale)
      .masked_fill(later, -std::numeric_limits<double>::infinity());
}

}  // namespace heddle::runtime
