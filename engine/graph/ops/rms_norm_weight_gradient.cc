/// \file
/// dweight master [D] = sum of dy · x · rstd over the rows: dy, x […, D], rstd master […].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class RmsNormWeightGradient final : public Operator {
 public:
  std::string_view name() const override { return "rms_norm_weight_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& x = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "dy", inputs[0], x, "x", x));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "rstd", inputs[2], StatisticsType(x), "x", x));
    return std::vector<TensorType>{FeatureType(x)};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 3 * static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(3, 1);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d), Cut(d), Cut(d)}, {Sum()});  // Batch and sequence: rows are independent.
    }
    const int last = LastDim(inputs[0]);
    rules.Add({Cut(last), Cut(last), Whole()}, {Cut(0)});  // Features.
    rules.Add({Sum(), Whole(), Whole()}, {Sum()});         // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(RmsNormWeightGradient);

}  // namespace
}  // namespace heddle::graph
