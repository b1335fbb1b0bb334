/// \file
/// dx […, K] = dy · weight: dy […, N], weight [N, K].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class LinearInputGradient final : public Operator {
 public:
  std::string_view name() const override { return "linear_input_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& dy = inputs[0];
    const TensorType& weight = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "dy", dy, 1));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "weight", weight, 2));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "weight", weight,
                                     {dy.dtype, {dy.shape.back(), weight.shape[1]}}, "dy", dy));
    TensorType dx = dy;
    dx.shape.back() = weight.shape[1];
    return std::vector<TensorType>{dx};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 2 * static_cast<double>(ElementCount(outputs[0].shape) * inputs[1].shape[0]),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    const int last = LastDim(inputs[0]);
    RuleList rules(2, 1);
    for (int d = 0; d < last; ++d) {
      rules.Add({Cut(d), Whole()}, {Cut(d)});  // Batch and sequence.
    }
    rules.Add({Cut(last), Cut(0)}, {Sum()});    // Column parallel forward.
    rules.Add({Whole(), Cut(1)}, {Cut(last)});  // Row parallel forward.
    rules.Add({Sum(), Whole()}, {Sum()});       // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(LinearInputGradient);

}  // namespace
}  // namespace heddle::graph
