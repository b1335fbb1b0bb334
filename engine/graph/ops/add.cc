/// \file
/// y = a + b of one type: residual connections, and sums of gradients.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Add final : public Operator {
 public:
  std::string_view name() const override { return "add"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "a", inputs[0], 0));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "b", inputs[1], inputs[0], "a", inputs[0]));
    return std::vector<TensorType>{inputs[0]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 1);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    for (int i = 0; i < 2; ++i) {
      if (b.Wanted(i)) {
        HEDDLE_RETURN_IF_ERROR(b.Contribute(i, *dy));
      }
    }
    return Status::Ok();
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(2, 1);
    for (int d = 0; d <= LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d)}, {Cut(d)});  // Any dimension: elements are independent.
    }
    rules.Add({Sum(), Sum()}, {Sum()});  // Linear in both together.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Add);

}  // namespace
}  // namespace heddle::graph
