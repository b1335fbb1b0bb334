/// \file
/// y […, D] = (x − mean) · rstd · weight + bias with mean […] and rstd […] = 1 / sqrt(variance +
/// epsilon) in the master type, which the backward nodes read again (Ba et al. 2016). x […, D],
/// weight and bias master [D].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class LayerNorm final : public Operator {
 public:
  std::string_view name() const override { return "layer_norm"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& x = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "weight", inputs[1], FeatureType(x), "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "bias", inputs[2], FeatureType(x), "x", x));
    return std::vector<TensorType>{x, StatisticsType(x), StatisticsType(x)};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 7);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    const TensorId mean = b.output(1);
    const TensorId rstd = b.output(2);
    HEDDLE_RETURN_IF_ERROR(ContributeNode(b, 0, "layer_norm_input_gradient",
                                          {*dy, b.input(0), b.input(1), mean, rstd}, {},
                                          Phase::kBackward));
    HEDDLE_RETURN_IF_ERROR(ContributeNode(b, 1, "layer_norm_weight_gradient",
                                          {*dy, b.input(0), mean, rstd}, {}, Phase::kWeight));
    return ContributeNode(b, 2, "bias_gradient", {*dy}, {}, Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(3, 3);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Whole(), Whole()},
                {Cut(d), Cut(d), Cut(d)});  // Batch and sequence: rows are independent.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(LayerNorm);

}  // namespace
}  // namespace heddle::graph
