#include "engine/runtime/kernels/attention_heads.h"
#include "engine/runtime/kernels/attention_loops.h"

namespace heddle::runtime {
namespace {

// do, q, k, v, o, lse -> dq, dk, dv. With P = exp(S - lse): dV = P^T dO, dP = dO V^T,
// dS = P * (dP - rowsum(dO * O)), dQ = dS K / sqrt(d), dK = dS^T Q / sqrt(d)
// (Dao et al. 2022, arXiv:2205.14135, appendix B).
Tensors AttentionGradient(const graph::Node& node,
                          Inputs inputs,
                          const KernelContext& /*context*/) {
  const graph::HeadGroups groups(node.attributes);
  if (UsesLoops(inputs[0])) {
    at::Tensor dq = at::empty_like(inputs[1]);
    at::Tensor dk = at::empty_like(inputs[2]);
    at::Tensor dv = at::empty_like(inputs[3]);
    WithElement(dq, [&](auto element) {
      using T = decltype(element);
      ForEachHead<T>(dq, groups,
                     [&](simd::AttentionHead<T>& head, int64_t q, int64_t kv, int64_t row) {
                       head.dout = Data<T>(inputs[0]) + q;
                       head.q = Data<T>(inputs[1]) + q;
                       head.k = Data<T>(inputs[2]) + kv;
                       head.v = Data<T>(inputs[3]) + kv;
                       head.o = Data<T>(inputs[4]) + q;
                       head.lse = Data<Wide<T>>(inputs[5]) + row;
                       head.dq = Data<T>(dq) + q;
                       head.dk = Data<T>(dk) + kv;
                       head.dv = Data<T>(dv) + kv;
                       simd::Loops<T>().attention_gradient(head);
                     });
    });
    return {dq, dk, dv};
  }
  const at::Tensor dout = SplitHeads(inputs[0], groups.heads);
  const at::Tensor query = SplitHeads(inputs[1], groups.heads);
  const at::Tensor key = SplitKeyHeads(inputs[2], groups);
  const at::Tensor value = SplitKeyHeads(inputs[3], groups);
  const at::Tensor out = SplitHeads(inputs[4], groups.heads);
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));

  const at::Tensor probability = at::exp(CausalScores(query, key) - inputs[5].unsqueeze(3));
  const at::Tensor delta = at::sum(dout * out, {3}, /*keepdim=*/true);
  const at::Tensor dscores =
      probability * (at::matmul(dout, value.transpose(2, 3)) - delta) * scale;
  const at::Tensor dquery = at::matmul(dscores, key);
  const at::Tensor dkey = SumOfGroups(at::matmul(dscores.transpose(2, 3), query), groups);
  const at::Tensor dvalue = SumOfGroups(at::matmul(probability.transpose(2, 3), dout), groups);
  const at::ScalarType type = inputs[1].scalar_type();
  return {JoinHeads(dquery, type), JoinHeads(dkey, type), JoinHeads(dvalue, type)};
}

HEDDLE_REGISTER_KERNEL(attention_gradient, AttentionGradient);

}  // namespace
}  // namespace heddle::runtime
