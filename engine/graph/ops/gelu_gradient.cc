/// \file
/// dx = dy · gelu'(x), elements apart.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class GeluGradient final : public Operator {
 public:
  std::string_view name() const override { return "gelu_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", inputs[1], 0));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "dy", inputs[0], inputs[1], "x", inputs[1]));
    return std::vector<TensorType>{inputs[1]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 16);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(2, 1);
    for (int d = 0; d <= LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d)}, {Cut(d)});  // Any dimension: elements are independent.
    }
    rules.Add({Sum(), Whole()}, {Sum()});  // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(GeluGradient);

}  // namespace
}  // namespace heddle::graph
