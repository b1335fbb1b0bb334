#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// dy [B, T, D], tokens [B, T] -> dweight [V, D], the rows from `first_row` on. Rows are added in
// the order of the tokens: no atomics (index_put_ with accumulation sorts on a GPU).
Tensors EmbeddingWeightGradient(const graph::Node& node,
                                Inputs inputs,
                                const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const at::Tensor& source = inputs[0];
    const int64_t dim = source.size(2);
    const int64_t rows = source.numel() / dim;
    at::Tensor result = at::zeros({node.attributes.Int("vocabulary"), dim},
                                  source.options().dtype(WideType(source)));
    WithElement(source, [&](auto element) {
      using T = decltype(element);
      ParallelColumns(dim, rows, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().embedding_gradient(Data<T>(source), Data<int32_t>(inputs[1]),
                                            Data<Wide<T>>(result), rows, dim,
                                            First(node, "first_row"), result.size(0), begin, end);
      });
    });
    return {result};
  }
  const at::Tensor dy = Widen(Rows(inputs[0]));
  at::Tensor dweight = at::zeros({node.attributes.Int("vocabulary"), dy.size(1)}, dy.options());
  const at::Tensor tokens = inputs[1].reshape({-1});
  if (const auto first_row = node.attributes.FindInt("first_row")) {
    const OwnRows rows = RowsOfShare(tokens, *first_row, dweight.size(0));
    dweight.index_put_({rows.row.index({rows.own})}, dy.index({rows.own}), /*accumulate=*/true);
  } else {
    dweight.index_put_({tokens.to(at::kLong)}, dy, /*accumulate=*/true);
  }
  return {dweight};
}

HEDDLE_REGISTER_KERNEL(embedding_weight_gradient, EmbeddingWeightGradient);

}  // namespace
}  // namespace heddle::runtime
