#include "engine/runtime/kernels/loops.h"

namespace heddle::runtime {
namespace {

// logits [B, T, V], targets [B, T] -> loss fp64 scalar = scale * sum of (lse - logit of the
// target), lse [B, T].
Tensors CrossEntropy(const graph::Node& node, Inputs inputs, const KernelContext& /*context*/) {
  if (UsesLoops(inputs[0])) {
    const int64_t vocabulary = inputs[0].size(2);
    at::Tensor lse = NewTensor(inputs[0], inputs[1].sizes(), WideType(inputs[0]));
    at::Tensor losses = at::empty_like(lse);
    double sum = 0;
    WithElement(inputs[0], [&](auto element) {
      using T = decltype(element);
      Wide<T>* values = Data<Wide<T>>(losses);
      ParallelRows(lse.numel(), vocabulary, [&](int64_t begin, int64_t end) {
        simd::Loops<T>().cross_entropy(Data<T>(inputs[0]) + begin * vocabulary,
                                       Data<int32_t>(inputs[1]) + begin, Data<Wide<T>>(lse) + begin,
                                       values + begin, end - begin, vocabulary);
      });
      for (int64_t i = 0; i < losses.numel(); ++i) {
        sum += static_cast<double>(values[i]);
      }
    });
    return {at::scalar_tensor(sum * node.attributes.Float("scale"), at::TensorOptions(at::kDouble)),
            lse};
  }
  const at::Tensor logits = Widen(inputs[0]);
  const at::Tensor lse = at::logsumexp(logits, {-1});
  const at::Tensor chosen = logits.gather(-1, inputs[1].to(at::kLong).unsqueeze(-1)).squeeze(-1);
  const at::Tensor loss = at::sum((lse - chosen).to(at::kDouble)) * node.attributes.Float("scale");
  return {loss, lse};
}

HEDDLE_REGISTER_KERNEL(cross_entropy, CrossEntropy);

}  // namespace
}  // namespace heddle::runtime
