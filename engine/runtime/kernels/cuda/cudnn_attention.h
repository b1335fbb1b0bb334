/// \file
/// Causal attention by cuDNN, with a backward pass that gives the same bits each time. Which shapes
/// it takes depends on the shape, the card and the libraries alone, not on free memory or time; it
/// takes a shape's forward and backward pass, or neither. Thread: any; each makes plans of its own.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "engine/runtime/kernels/common.h"

namespace heddle::runtime::cuda {

/// bf16 heads: q, o [batch, length, heads * head_dim], k, v [batch, length, kv_heads * head_dim], of
/// which equal groups of query heads read one key/value head.
struct AttentionShape {
  int64_t batch;
  int64_t length;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  auto operator<=>(const AttentionShape&) const = default;
};

/// q, k, v -> o, and lse [batch, heads, length] in fp32, the natural logarithm of the sum of the
/// exponentials. Nothing if cuDNN is missing or refuses the shape. The first call for a shape takes
/// a second or two. Throws libtorch's exceptions with what failed and cuDNN's message.
std::optional<Tensors> CudnnAttention(const AttentionShape& shape, Inputs in);

/// do, q, k, v, o, lse -> dq, dk, dv; otherwise as above.
std::optional<Tensors> CudnnAttentionGradient(const AttentionShape& shape, Inputs in);

}  // namespace heddle::runtime::cuda
