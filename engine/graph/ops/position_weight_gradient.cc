/// \file
/// dweight master [P, D] = sum of dy [B, T, D] over the batch; rows from T on are 0. Attribute
/// `positions`: P; of a share of the sequence `first_position`, before which rows are 0 as well.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class PositionWeightGradient final : public Operator {
 public:
  std::string_view name() const override { return "position_weight_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    const TensorType& dy = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "dy", dy, 3));
    const int64_t positions = attributes.Int("positions");
    const int64_t first = First(attributes, "first_position");
    if (first < 0 || first + dy.shape[1] > positions) {
      return InvalidArgumentError(
          "position_weight_gradient: dy {} is longer than the {} positions from {} on",
          ToString(dy), positions - first, first);
    }
    return std::vector<TensorType>{{MasterType(dy.dtype), {positions, dy.shape[2]}}};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> outputs,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(1, 1);
    rules.Add({Cut(0)}, {Sum()});   // Batch.
    rules.Add({Cut(2)}, {Cut(1)});  // Features.
    rules.Add({Sum()}, {Sum()});    // Linear.
    if (inputs[0].shape[1] == outputs[0].shape[0]) {
      rules.Add({Cut(1)}, {Cut(0)}, {"positions"});  // Sequence, when every position is used.
    } else {
      rules.Add({Cut(1)}, {Sum()}, {}, {"first_position"});  // Sequence: a share has its own rows.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(PositionWeightGradient);

}  // namespace
}  // namespace heddle::graph
