/// \file
/// dx […, D] of layer_norm from dy, x […, D], weight master [D], mean and rstd master […]: with n =
/// (x − mean) · rstd and g = dy · weight, dx = rstd · (g − mean(g) − n · mean(g · n)).
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class LayerNormInputGradient final : public Operator {
 public:
  std::string_view name() const override { return "layer_norm_input_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 5, 5));
    const TensorType& x = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "dy", inputs[0], x, "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "weight", inputs[2], FeatureType(x), "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "mean", inputs[3], StatisticsType(x), "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "rstd", inputs[4], StatisticsType(x), "x", x));
    return std::vector<TensorType>{x};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 10);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(5, 1);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d), Whole(), Cut(d), Cut(d)},
                {Cut(d)});  // Batch and sequence: rows are independent.
    }
    rules.Add({Sum(), Whole(), Whole(), Whole(), Whole()}, {Sum()});  // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(LayerNormInputGradient);

}  // namespace
}  // namespace heddle::graph
