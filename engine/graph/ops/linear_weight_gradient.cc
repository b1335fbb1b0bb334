/// \file
/// dweight master [N, K] = dyᵀ · x over all rows: dy […, N], x […, K].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class LinearWeightGradient final : public Operator {
 public:
  std::string_view name() const override { return "linear_weight_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& dy = inputs[0];
    const TensorType& x = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "dy", dy, 1));
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    TensorType expected = dy;
    expected.shape.back() = x.shape.back();
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "x", x, expected, "dy", dy));
    return std::vector<TensorType>{{MasterType(dy.dtype), {dy.shape.back(), x.shape.back()}}};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 2 * static_cast<double>(ElementCount(inputs[0].shape) * outputs[0].shape[1]),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    const int last = LastDim(inputs[0]);
    RuleList rules(2, 1);
    for (int d = 0; d < last; ++d) {
      rules.Add({Cut(d), Cut(d)}, {Sum()});  // Batch and sequence.
    }
    rules.Add({Cut(last), Whole()}, {Cut(0)});  // Column parallel forward.
    rules.Add({Whole(), Cut(last)}, {Cut(1)});  // Row parallel forward.
    rules.Add({Sum(), Whole()}, {Sum()});       // Linear in dy.
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(LinearWeightGradient);

}  // namespace
}  // namespace heddle::graph
