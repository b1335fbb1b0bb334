/// \file
/// dbias master [N] = sum of dy […, N] over the rows.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class BiasGradient final : public Operator {
 public:
  std::string_view name() const override { return "bias_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "dy", inputs[0], 1));
    return std::vector<TensorType>{FeatureType(inputs[0])};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(1, 1);
    for (int d = 0; d < LastDim(inputs[0]); ++d) {
      rules.Add({Cut(d)}, {Sum()});  // Batch and sequence.
    }
    rules.Add({Cut(LastDim(inputs[0]))}, {Cut(0)});  // Features.
    rules.Add({Sum()}, {Sum()});                     // Linear.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(BiasGradient);

}  // namespace
}  // namespace heddle::graph
