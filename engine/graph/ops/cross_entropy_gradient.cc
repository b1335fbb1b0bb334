/// \file
/// dlogits [B, T, V] = scale · (softmax(logits) − onehot(targets)): logits [B, T, V], targets int32
/// [B, T], lse master [B, T]. Attribute `scale`; of a share of the vocabulary `first_row`, its
/// first logit.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class CrossEntropyGradient final : public Operator {
 public:
  std::string_view name() const override { return "cross_entropy_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& logits = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "logits", logits, 3));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "targets", inputs[1],
                                     {DType::kI32, {logits.shape[0], logits.shape[1]}}, "logits",
                                     logits));
    HEDDLE_RETURN_IF_ERROR(
        CheckType(name(), "lse", inputs[2], StatisticsType(logits), "logits", logits));
    return std::vector<TensorType>{logits};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 4);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(3, 1)
        .Add({Cut(0), Cut(0), Cut(0)}, {Cut(0)})                       // Batch.
        .Add({Cut(1), Cut(1), Cut(1)}, {Cut(1)})                       // Sequence.
        .Add({Cut(2), Whole(), Whole()}, {Cut(2)}, {}, {"first_row"})  // Vocabulary.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(CrossEntropyGradient);

}  // namespace
}  // namespace heddle::graph
