/// \file
/// sums master [B, T, 2] = Σ exp(logits − most), and the target's logit: logits [B, T, V], targets
/// int32 [B, T], most master [B, T] of the whole vocabulary. The second part of cross_entropy. A
/// share of the vocabulary has the logits from its attribute `first_row` on, and -0.0 for the logit
/// of another's target.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class ExpSum final : public Operator {
 public:
  std::string_view name() const override { return "exp_sum"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& logits = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "logits", logits, 3));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "targets", inputs[1],
                                     {DType::kI32, {logits.shape[0], logits.shape[1]}}, "logits",
                                     logits));
    const TensorType most = StatisticsType(logits);
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "most", inputs[2], most, "logits", logits));
    return std::vector<TensorType>{{most.dtype, {most.shape[0], most.shape[1], 2}}};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 3 * static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(3, 1)
        .Add({Cut(0), Cut(0), Cut(0)}, {Cut(0)})                      // Batch.
        .Add({Cut(1), Cut(1), Cut(1)}, {Cut(1)})                      // Sequence.
        .Add({Cut(2), Whole(), Whole()}, {Sum()}, {}, {"first_row"})  // Vocabulary.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(ExpSum);

}  // namespace
}  // namespace heddle::graph
