#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// ColumnSum with its scratch memory; x, mean and rstd may be null as there.
void SumRows(const RowShape& shape,
             const at::Tensor& dy,
             const void* x,
             const float* mean,
             const float* rstd,
             float* sums) {
  const at::Tensor scratch = NewTensor(dy, {ColumnSumScratch(shape.rows), shape.dim}, at::kFloat);
  ColumnSum(shape, dy.data_ptr(), x, mean, rstd, DataOf<float>(scratch), sums, CurrentStream());
  CheckLaunch();
}

// dy, x [..., D], rstd [...] -> dweight [D].
Tensors RmsNormWeightGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 2)) {
    return Plain("rms_norm_weight_gradient", node, in, context);
  }
  at::Tensor dweight = NewTensor(in[0], {in[0].size(-1)}, at::kFloat);
  SumRows(RowsOf(in[0]), in[0], in[1].data_ptr(), nullptr, DataOf<float>(in[2]),
          DataOf<float>(dweight));
  return {dweight};
}

// dy, x [..., D], mean, rstd [...] -> dweight [D].
Tensors LayerNormWeightGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 2)) {
    return Plain("layer_norm_weight_gradient", node, in, context);
  }
  at::Tensor dweight = NewTensor(in[0], {in[0].size(-1)}, at::kFloat);
  SumRows(RowsOf(in[0]), in[0], in[1].data_ptr(), DataOf<float>(in[2]), DataOf<float>(in[3]),
          DataOf<float>(dweight));
  return {dweight};
}

// dy [..., N] -> dbias [N].
Tensors BiasGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("bias_gradient", node, in, context);
  }
  at::Tensor dbias = NewTensor(in[0], {in[0].size(-1)}, at::kFloat);
  SumRows(RowsOf(in[0]), in[0], nullptr, nullptr, nullptr, DataOf<float>(dbias));
  return {dbias};
}

// dy [B, T, D] -> dweight [P, D]: the sum over the batch in the T rows from `first_position` on; the
// others are 0.
Tensors PositionWeightGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("position_weight_gradient", node, in, context);
  }
  const at::Tensor& dy = in[0];
  at::Tensor dweight =
      at::zeros({node.attributes.Int("positions"), dy.size(2)}, dy.options().dtype(at::kFloat));
  const RowShape samples{.type = TypeOf(dy), .rows = dy.size(0), .dim = dy.size(1) * dy.size(2)};
  SumRows(samples, dy, nullptr, nullptr, nullptr,
          DataOf<float>(dweight) + First(node, "first_position") * dy.size(2));
  return {dweight};
}

HEDDLE_REGISTER_CUDA_KERNEL(rms_norm_weight_gradient, RmsNormWeightGradient);
HEDDLE_REGISTER_CUDA_KERNEL(layer_norm_weight_gradient, LayerNormWeightGradient);
HEDDLE_REGISTER_CUDA_KERNEL(bias_gradient, BiasGradient);
HEDDLE_REGISTER_CUDA_KERNEL(position_weight_gradient, PositionWeightGradient);

}  // namespace
}  // namespace heddle::runtime::cuda
