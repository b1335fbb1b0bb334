/// \file
/// y = 0.5 · x · (1 + tanh(sqrt(2/π) · (x + 0.044715 x³))): GPT-2's "gelu_new" (Hendrycks & Gimpel
/// 2016).
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Gelu final : public Operator {
 public:
  std::string_view name() const override { return "gelu"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", inputs[0], 0));
    return std::vector<TensorType>{inputs[0]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 9);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    return ContributeNode(b, 0, "gelu_gradient", {*dy, b.input(0)}, {}, Phase::kBackward);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(1, 1);
    for (int d = 0; d <= LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d)}, {Cut(d)});  // Any dimension: elements are independent.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Gelu);

}  // namespace
}  // namespace heddle::graph
