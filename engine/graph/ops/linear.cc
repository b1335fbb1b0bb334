/// \file
/// y […, N] = x · weightᵀ (+ bias): x […, K], weight [N, K], bias master [N].
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Linear final : public Operator {
 public:
  std::string_view name() const override { return "linear"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 3));
    const TensorType& x = inputs[0];
    const TensorType& weight = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckFloating(name(), "x", x, 1));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "weight", weight, 2));
    HEDDLE_RETURN_IF_ERROR(
        CheckType(name(), "weight", weight, {x.dtype, {weight.shape[0], x.shape.back()}}, "x", x));
    TensorType y = x;
    y.shape.back() = weight.shape[0];
    if (inputs.size() == 3) {
      HEDDLE_RETURN_IF_ERROR(
          CheckType(name(), "bias", inputs[2], FeatureType(y), "weight", weight));
    }
    return std::vector<TensorType>{y};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    const double bias =
        inputs.size() == 3 ? static_cast<double>(ElementCount(outputs[0].shape)) : 0;
    return {.flops =
                2 * static_cast<double>(ElementCount(outputs[0].shape) * inputs[1].shape[1]) + bias,
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    HEDDLE_RETURN_IF_ERROR(
        ContributeNode(b, 0, "linear_input_gradient", {*dy, b.input(1)}, {}, Phase::kBackward));
    HEDDLE_RETURN_IF_ERROR(
        ContributeNode(b, 1, "linear_weight_gradient", {*dy, b.input(0)}, {}, Phase::kWeight));
    if (b.node().inputs.size() < 3) {
      return Status::Ok();
    }
    return ContributeNode(b, 2, "bias_gradient", {*dy}, {}, Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    const int last = LastDim(inputs[0]);
    const bool has_bias = inputs.size() == 3;
    RuleList rules(inputs.size(), 1);
    auto add = [&](Placement x, Placement weight, Placement bias, Placement y) {
      rules.Add(has_bias ? std::vector{x, weight, bias} : std::vector{x, weight}, {y});
    };
    for (int d = 0; d < last; ++d) {
      add(Cut(d), Whole(), Whole(), Cut(d));  // Batch and sequence.
    }
    add(Whole(), Cut(0), Cut(0), Cut(last));  // Column parallel: output features.
    add(Cut(last), Cut(1), Sum(), Sum());     // Row parallel: input features.
    add(Sum(), Whole(), Sum(), Sum());        // Linear in x (and bias together).
    add(Whole(), Sum(), Sum(), Sum());        // Linear in weight (and bias together).
    return rules.Take();
  }

  /// The bias is added once, to the sum of what shares of the input features give.
  std::vector<OperatorPart> Parts(std::span<const TensorType> inputs,
                                  const Attributes& /*attributes*/) const override {
    if (inputs.size() < 3) {
      return {};
    }
    return {{.op = "linear", .attributes = {}, .inputs = {0, 1}},
            {.op = "add_bias", .attributes = {}, .inputs = {3, 2}}};
  }
};

HEDDLE_REGISTER_OPERATOR(Linear);

}  // namespace
}  // namespace heddle::graph
