#include <tuple>

#include "engine/runtime/kernels/cuda/operands.h"

namespace heddle::runtime::cuda {
namespace {

// dy [B, T, D], tokens [B, T] -> dweight [V, D], the rows from `first_row` on.
Tensors WeightGradient(const graph::Node& node, Inputs in, const KernelContext& context) {
  if (!Fit(in, 1)) {
    return Plain("embedding_weight_gradient", node, in, context);
  }
  const int64_t vocabulary = node.attributes.Int("vocabulary");
  const auto [tokens, rows] =
      at::sort(in[1].reshape({-1}), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor scratch = NewTensor(in[0], {vocabulary + 1}, at::kLong);
  at::Tensor dweight = NewTensor(in[0], {vocabulary, in[0].size(2)}, at::kFloat);
  EmbeddingWeightGradient(RowsOf(in[0]), in[0].data_ptr(),
                          {.tokens = DataOf<int32_t>(tokens), .rows = DataOf<int64_t>(rows)},
                          First(node, "first_row"), vocabulary, DataOf<int64_t>(scratch),
                          DataOf<float>(dweight), CurrentStream());
  CheckLaunch();
  return {dweight};
}

HEDDLE_REGISTER_CUDA_KERNEL(embedding_weight_gradient, WeightGradient);

}  // namespace
}  // namespace heddle::runtime::cuda
