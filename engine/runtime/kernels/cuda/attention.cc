#include <cmath>
#include <tuple>
#include <utility>

#include "engine/graph/head_groups.h"
#include "engine/runtime/kernels/cuda/cudnn_attention.h"
#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

constexpr int64_t kMostFlashDim = 256;  // Of a head of libtorch's flash attention.

// cuDNN and libtorch's flash attention take bf16, heads of a multiple of 8, and equal groups of query
// heads. cuDNN goes first, and flash takes what it refuses.
bool FitsFused(const graph::Node& node, Inputs in, size_t query) {
  const graph::HeadGroups groups(node.attributes);
  const int64_t head_dim = in[query].size(2) / groups.heads;
  return in[query].scalar_type() == at::kBFloat16 && head_dim % 8 == 0 &&
         head_dim <= kMostFlashDim && groups.before == 0 &&
         groups.heads == groups.kv_heads * groups.group;
}

AttentionShape ShapeOf(const graph::HeadGroups& groups, const at::Tensor& query) {
  return {.batch = query.size(0),
          .length = query.size(1),
          .heads = groups.heads,
          .kv_heads = groups.kv_heads,
          .head_dim = query.size(2) / groups.heads};
}

HeadShape OwnShapeOf(const graph::HeadGroups& groups, const at::Tensor& query) {
  return {.type = TypeOf(query),
          .batch = query.size(0),
          .length = query.size(1),
          .heads = groups.heads,
          .kv_heads = groups.kv_heads,
          .group = groups.group,
          .before = groups.before,
          .head_dim = query.size(2) / groups.heads};
}

// By kernels of its own: fp32, and the bf16 that the libraries do not take.
Tensors OwnForward(const graph::HeadGroups& groups, Inputs in) {
  at::Tensor o = at::empty_like(in[0]);
  at::Tensor lse = NewTensor(o, {o.size(0), groups.heads, o.size(1)}, at::kFloat);
  Attention(OwnShapeOf(groups, in[0]), in[0].data_ptr(), in[1].data_ptr(), in[2].data_ptr(),
            o.data_ptr(), DataOf<float>(lse), CurrentStream());
  CheckLaunch();
  return {o, lse};
}

Tensors OwnGradient(const graph::HeadGroups& groups, Inputs in) {
  at::Tensor dq = at::empty_like(in[1]);
  at::Tensor dk = at::empty_like(in[2]);
  at::Tensor dv = at::empty_like(in[3]);
  const at::Tensor delta = at::empty_like(in[5]);
  AttentionGradient(OwnShapeOf(groups, dq), in[0].data_ptr(), in[1].data_ptr(), in[2].data_ptr(),
                    in[3].data_ptr(), in[4].data_ptr(), DataOf<float>(in[5]), DataOf<float>(delta),
                    dq.data_ptr(), dk.data_ptr(), dv.data_ptr(), CurrentStream());
  CheckLaunch();
  return {dq, dk, dv};
}

// [B, T, heads*d] as [B, T, heads, d], without a copy.
at::Tensor Heads(const at::Tensor& tensor, int64_t heads) {
  return tensor.view({tensor.size(0), tensor.size(1), heads, tensor.size(2) / heads});
}

double ScaleOf(const at::Tensor& query) {
  return 1.0 / std::sqrt(static_cast<double>(query.size(3)));
}

// q [B, T, H*d], k, v [B, T, G*d] -> o [B, T, H*d], lse [B, H, T].
Tensors Forward(const graph::Node& node, Inputs in, const KernelContext& context) {
  const graph::HeadGroups groups(node.attributes);
  if (!FitsFused(node, in, 0)) {
    return Fit(in, 3) && in[0].size(2) / groups.heads <= kMostHeadDim
               ? OwnForward(groups, in)
               : Plain("attention", node, in, context);
  }
  if (auto outputs = CudnnAttention(ShapeOf(groups, in[0]), in)) {
    return *std::move(outputs);
  }
  const at::Tensor q = Heads(in[0], groups.heads);
  const at::Tensor k = Heads(in[1], groups.kv_heads);
  const at::Tensor v = Heads(in[2], groups.kv_heads);
  const auto result = at::_flash_attention_forward(
      q, k, v, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(1), k.size(1), /*dropout_p=*/0.0,
      /*is_causal=*/true, /*return_debug_mask=*/false, ScaleOf(q));
  return {std::get<0>(result).reshape(in[0].sizes()), std::get<1>(result).contiguous()};
}

// do, q, k, v, o, lse -> dq, dk, dv. Flash gives the same bits each time under libtorch's
// deterministic flag, which the device has set for the process (device/cuda/exact.h).
Tensors Gradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  const graph::HeadGroups groups(node.attributes);
  if (!FitsFused(node, in, 1)) {
    return Fit(in, 5) && in[1].size(2) / groups.heads <= kMostHeadDim
               ? OwnGradient(groups, in)
               : Plain("attention_gradient", node, in, context);
  }
  if (auto outputs = CudnnAttentionGradient(ShapeOf(groups, in[1]), in)) {
    return *std::move(outputs);
  }
  const at::Tensor q = Heads(in[1], groups.heads);
  const at::Tensor k = Heads(in[2], groups.kv_heads);
  const at::Tensor v = Heads(in[3], groups.kv_heads);
  const at::Tensor none;
  // Of dropout, of which there is none: they are not read.
  const at::Tensor rng = NewTensor(q, {2}, at::kLong);
  const at::Tensor unused = NewTensor(q, {}, at::kLong);
  const auto result = at::_flash_attention_backward(
      Heads(in[0], groups.heads), q, k, v, Heads(in[4], groups.heads), in[5], none, none, q.size(1),
      k.size(1), /*dropout_p=*/0.0, /*is_causal=*/true, rng, unused, ScaleOf(q));
  return {std::get<0>(result).reshape(in[1].sizes()), std::get<1>(result).reshape(in[2].sizes()),
          std::get<2>(result).reshape(in[3].sizes())};
}

HEDDLE_REGISTER_CUDA_KERNEL(attention, Forward);
HEDDLE_REGISTER_CUDA_KERNEL(attention_gradient, Gradient);

}  // namespace
}  // namespace heddle::runtime::cuda
