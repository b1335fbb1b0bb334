/// \file
/// most master [B, T] = the largest of logits [B, T, V]. The first part of cross_entropy, of a
/// share of the vocabulary: exp_sum and cross_entropy_of_sums follow.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class RowMax final : public Operator {
 public:
  std::string_view name() const override { return "row_max"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "logits", inputs[0], 3));
    return std::vector<TensorType>{StatisticsType(inputs[0])};
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
    return RuleList(1, 1)
        .Add({Cut(0)}, {Cut(0)})  // Batch.
        .Add({Cut(1)}, {Cut(1)})  // Sequence.
        .Add({Cut(2)}, {Max()})   // Vocabulary.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(RowMax);

}  // namespace
}  // namespace heddle::graph
