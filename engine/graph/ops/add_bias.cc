/// \file
/// y […, N] = x + bias: bias master [N]. The bias of a linear layer whose input features are cut,
/// once the shares' products are summed.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class AddBias final : public Operator {
 public:
  std::string_view name() const override { return "add_bias"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& x = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "bias", inputs[1], FeatureType(x), "x", x));
    return std::vector<TensorType>{x};
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

    if (b.Wanted(0)) {
      HEDDLE_RETURN_IF_ERROR(b.Contribute(0, *dy));
    }
    return ContributeNode(b, 1, "bias_gradient", {*dy}, {}, Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    const int last = LastDim(inputs[0]);
    RuleList rules(2, 1);
    for (int d = 0; d < last; ++d) {
      rules.Add({Cut(d), Whole()}, {Cut(d)});  // Batch and sequence.
    }
    rules.Add({Cut(last), Cut(0)}, {Cut(last)});  // Features.
    rules.Add({Sum(), Sum()}, {Sum()});           // Linear in both together.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(AddBias);

}  // namespace
}  // namespace heddle::graph
