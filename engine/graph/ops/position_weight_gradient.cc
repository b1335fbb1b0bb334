/// \file
/// dweight master [P, D] = sum of dy [B, T, D] over the batch; rows from T on are 0. Attribute
/// `positions`: P.
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
    if (dy.shape[1] > positions) {
      return InvalidArgumentError("position_weight_gradient: dy {} is longer than {} positions",
                                  ToString(dy), positions);
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
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(PositionWeightGradient);

}  // namespace
}  // namespace heddle::graph
