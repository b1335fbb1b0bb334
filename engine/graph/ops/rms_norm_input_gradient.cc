/// \file
/// dx […, D] of rms_norm from dy, x […, D], weight master [D] and rstd master […]:
/// dx = rstd · (g − x · rstd² · mean(g · x)) with g = dy · weight.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class RmsNormInputGradient final : public Operator {
 public:
  std::string_view name() const override { return "rms_norm_input_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 4, 4));
    const TensorType& x = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "dy", inputs[0], x, "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "weight", inputs[2], FeatureType(x), "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "rstd", inputs[3], StatisticsType(x), "x", x));
    return std::vector<TensorType>{x};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 7);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(4, 1);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d), Whole(), Cut(d)},
                {Cut(d)});  // Batch and sequence: rows are independent.
    }
    rules.Add({Sum(), Whole(), Whole(), Whole()}, {Sum()});  // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(RmsNormInputGradient);

}  // namespace
}  // namespace heddle::graph
