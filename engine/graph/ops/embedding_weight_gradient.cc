/// \file
/// dweight master [V, D]: row v is the sum of dy [B, T, D] where tokens int32 [B, T] is v.
/// Attribute `vocabulary`: V; of a share of the vocabulary `first_row`: tokens of other rows add
/// nothing.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class EmbeddingWeightGradient final : public Operator {
 public:
  std::string_view name() const override { return "embedding_weight_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& dy = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "dy", dy, 3));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "tokens", inputs[1],
                                     {DType::kI32, {dy.shape[0], dy.shape[1]}}, "dy", dy));
    return std::vector<TensorType>{
        {MasterType(dy.dtype), {attributes.Int("vocabulary"), dy.shape[2]}}};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(2, 1)
        .Add({Cut(0), Cut(0)}, {Sum()})                                    // Batch.
        .Add({Cut(1), Cut(1)}, {Sum()})                                    // Sequence.
        .Add({Cut(2), Whole()}, {Cut(1)})                                  // Features.
        .Add({Sum(), Whole()}, {Sum()})                                    // Linear in dy.
        .Add({Whole(), Whole()}, {Cut(0)}, {"vocabulary"}, {"first_row"})  // Vocabulary.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(EmbeddingWeightGradient);

}  // namespace
}  // namespace heddle::graph
