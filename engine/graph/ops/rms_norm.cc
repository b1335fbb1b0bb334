/// \file
/// y […, D] = x · rstd · weight with rstd […] = 1 / sqrt(mean(x²) + epsilon) in the master type,
/// which the backward nodes read again (Zhang & Sennrich 2019). x […, D], weight master [D].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class RmsNorm final : public Operator {
 public:
  std::string_view name() const override { return "rms_norm"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& x = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "weight", inputs[1], FeatureType(x), "x", x));
    return std::vector<TensorType>{x, StatisticsType(x)};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 4);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    HEDDLE_RETURN_IF_ERROR(ContributeNode(b, 0, "rms_norm_input_gradient",
                                          {*dy, b.input(0), b.input(1), b.output(1)}, {},
                                          Phase::kBackward));
    return ContributeNode(b, 1, "rms_norm_weight_gradient", {*dy, b.input(0), b.output(1)}, {},
                          Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(2, 2);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Whole()}, {Cut(d), Cut(d)});  // Batch and sequence: rows are independent.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(RmsNorm);

}  // namespace
}  // namespace heddle::graph
