/// \file
/// Plain ATen attention shared by the forward and the backward kernel: the path of devices that
/// have no loops of their own.
#pragma once

#include <cmath>
#include <limits>

#include "engine/graph/head_groups.h"
#include "engine/runtime/kernels/common.h"

namespace heddle::runtime {

/// [B, T, heads*d] as wide [B, heads, T, d].
inline at::Tensor SplitHeads(const at::Tensor& tensor, int64_t heads) {
  return Widen(tensor)
      .view({tensor.size(0), tensor.size(1), heads, tensor.size(2) / heads})
      .transpose(1, 2);
}

/// Keys or values [B, T, G*d] as wide [B, H, T, d]: each query head's own.
inline at::Tensor SplitKeyHeads(const at::Tensor& tensor, const graph::HeadGroups& groups) {
  const at::Tensor split = SplitHeads(tensor, groups.kv_heads);
  if (groups.group == 1) {
    return split;
  }
  const int64_t length = split.size(2);
  const int64_t head_dim = split.size(3);
  return split.unsqueeze(2)
      .expand({split.size(0), groups.kv_heads, groups.group, length, head_dim})
      .reshape({split.size(0), groups.kv_heads * groups.group, length, head_dim})
      .narrow(1, groups.before, groups.heads);
}

/// [B, H, T, d] summed over the query heads of each key/value head.
inline at::Tensor SumOfGroups(const at::Tensor& tensor, const graph::HeadGroups& groups) {
  const int64_t all = groups.kv_heads * groups.group;
  at::Tensor whole = tensor;
  if (groups.heads != all) {  // Of the first and the last group others may have heads.
    whole = at::constant_pad_nd(tensor,
                                {0, 0, 0, 0, groups.before, all - groups.heads - groups.before});
  }
  return whole.view({whole.size(0), groups.kv_heads, groups.group, whole.size(2), whole.size(3)})
      .sum(2);
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
