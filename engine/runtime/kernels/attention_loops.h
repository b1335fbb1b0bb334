/// \file
/// The frame that the CPU's attention forward and backward share: one task for each sample and
/// key/value head.
#pragma once

#include "engine/graph/head_groups.h"
#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {

/// Calls body(head, sample, kv head offset, query offset) with sizes and scratch set, on libtorch's
/// threads. A task holds whole gradients of its key/value head, so that no sum is cut over threads.
template <typename T, typename Body>
void ForEachHead(const at::Tensor& query, const graph::HeadGroups& groups, const Body& body) {
  using W = Wide<T>;
  const int64_t length = query.size(1);
  const int64_t heads = groups.heads;
  const int64_t kv_heads = groups.kv_heads;
  const int64_t head_dim = query.size(2) / heads;
  at::parallel_for(0, query.size(0) * kv_heads, 1, [&](int64_t begin, int64_t end) {
    const at::Tensor scratch =
        NewTensor(query, {simd::AttentionScratch(length, head_dim)}, WideType(query));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sample = task / kv_heads;
      const int64_t kv = task % kv_heads;
      const int64_t first = groups.FirstOf(kv);
      simd::AttentionHead<T> head;
      head.length = length;
      head.head_dim = head_dim;
      head.group = groups.FirstOf(kv + 1) - first;
      head.q_stride = heads * head_dim;
      head.kv_stride = kv_heads * head_dim;
      head.scratch = Data<W>(scratch);
      body(head, (sample * length * heads + first) * head_dim,
           (sample * length * kv_heads + kv) * head_dim, (sample * heads + first) * length);
    }
  });
}

}  // namespace heddle::runtime
