#include "engine/runtime/kernels/attention_heads.h"
#include "engine/runtime/kernels/attention_loops.h"

namespace heddle::runtime {
namespace {

// q [B, T, H*d], k, v [B, T, G*d] -> o [B, T, H*d], lse [B, H, T]: causal, scale 1/sqrt(d); query
// head h reads key head h / (H / G), in a share the one that HeadGroups says.
Tensors Attention(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  const graph::HeadGroups groups(node.attributes);
  if (UsesLoops(inputs[0])) {
    at::Tensor out = at::empty_like(inputs[0]);
    at::Tensor lse = NewTensor(out, {out.size(0), groups.heads, out.size(1)}, WideType(out));
    WithElement(out, [&](auto element) {
      using T = decltype(element);
      ForEachHead<T>(out, groups,
                     [&](simd::AttentionHead<T>& head, int64_t q, int64_t kv, int64_t row) {
                       head.q = Data<T>(inputs[0]) + q;
                       head.k = Data<T>(inputs[1]) + kv;
                       head.v = Data<T>(inputs[2]) + kv;
                       head.o = Data<T>(out) + q;
                       head.lse = Data<Wide<T>>(lse) + row;
                       simd::Loops<T>().attention(head);
                     });
    });
    return {out, lse};
  }
  const at::Tensor query = SplitHeads(inputs[0], groups.heads);
  const at::Tensor key = SplitKeyHeads(inputs[1], groups);
  const at::Tensor value = SplitKeyHeads(inputs[2], groups);
  const at::Tensor scores = CausalScores(query, key);
  const at::Tensor lse = at::logsumexp(scores, {3});
  const at::Tensor out = at::matmul(at::exp(scores - lse.unsqueeze(3)), value);
  return {JoinHeads(out, inputs[0].scalar_type()), lse};
}

HEDDLE_REGISTER_KERNEL(attention, Attention);

}  // namespace
}  // namespace heddle::runtime
