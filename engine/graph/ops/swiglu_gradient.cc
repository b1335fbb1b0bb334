/// \file
/// dgate = dy · up · silu'(gate) and dup = dy · silu(gate); all […, N].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class SwigluGradient final : public Operator {
 public:
  std::string_view name() const override { return "swiglu_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& gate = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "gate", gate, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "dy", inputs[0], gate, "gate", gate));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "up", inputs[2], gate, "gate", gate));
    return std::vector<TensorType>{gate, gate};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 11);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(3, 2);
    for (int d = 0; d <= LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d), Cut(d)},
                {Cut(d), Cut(d)});  // Any dimension: elements are independent.
    }
    rules.Add({Sum(), Whole(), Whole()}, {Sum(), Sum()});  // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(SwigluGradient);

}  // namespace
}  // namespace heddle::graph
