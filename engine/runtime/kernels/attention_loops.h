/// \file
/// The frame that the CPU's attention forward and backward share: one task for each sample and
/// key/value head.
#pragma once

#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {

/// Calls body(head, sample, kv head offset, query offset) with sizes and scratch set, on libtorch's
/// threads. A task holds whole gradients of its key/value head, so that no sum is cut over threads.
template <typename T, typename Body>
void ForEachHead(const at::Tensor& query, int64_t heads, int64_t kv_heads, const Body& body) {
  using W = Wide<T>;
  const int64_t length = query.size(1);
  const int64_t head_dim = query.size(2) / heads;
  const int64_t group = heads / kv_heads;
  at::parallel_for(0, query.size(0) * kv_heads, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch =
        NewTensor(query, {simd::AttentionScratch(length, head_dim)}, WideType(query));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sample = task / kv_heads;
      const int64_t kv = task % kv_heads;
      simd::AttentionHead<T> head;
      head.length = length;
      head.head_dim = head_dim;
      head.group = group;
      head.q_stride = heads * head_dim;
      head.kv_stride = kv_heads * head_dim;
      head.scratch = Data<W>(scratch);
      body(head, (sample * length * heads + kv * group) * head_dim,
           (sample * length * kv_heads + kv) * head_dim, (sample * heads + kv * group) * length);
    }
  });
}

}  // namespace heddle::runtime
