/// \file
/// y = silu(gate) · up, elements apart (Shazeer 2020): gate, up and y […, N].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Swiglu final : public Operator {
 public:
  std::string_view name() const override { return "swiglu"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "gate", inputs[0], 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "up", inputs[1], inputs[0], "gate", inputs[0]));
    return std::vector<TensorType>{inputs[0]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 6);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    HEDDLE_ASSIGN_OR_RETURN(
        const auto gradients,
        b.Apply("swiglu_gradient", {*dy, b.input(0), b.input(1)}, {}, Phase::kBackward));
    for (int i = 0; i < 2; ++i) {
      if (b.Wanted(i)) {
        HEDDLE_RETURN_IF_ERROR(b.Contribute(i, gradients[static_cast<size_t>(i)]));
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
    rules.Add({Whole(), Sum()}, {Sum()});  // Linear in up.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Swiglu);

}  // namespace
}  // namespace heddle::graph
