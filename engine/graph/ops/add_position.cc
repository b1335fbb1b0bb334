/// \file
/// y [B, T, D] = x + weight[:T]: x [B, T, D], weight [P, D] with T <= P (GPT-2's learned
/// positions). A share of the sequence reads the rows from its attribute `first_position` on.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class AddPosition final : public Operator {
 public:
  std::string_view name() const override { return "add_position"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& x = inputs[0];
    const TensorType& weight = inputs[1];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "x", x, 3));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "weight", weight, 2));
    HEDDLE_RETURN_IF_ERROR(
        CheckType(name(), "weight", weight, {x.dtype, {weight.shape[0], x.shape[2]}}, "x", x));
    const int64_t first = First(attributes, "first_position");
    if (first < 0 || first + x.shape[1] > weight.shape[0]) {
      return InvalidArgumentError("add_position: weight {} has fewer positions than x {}",
                                  ToString(weight), ToString(x));
    }
    return std::vector<TensorType>{x};
  }

  Cost CostOf(std::span<const TensorType> /*inputs*/,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    const auto bytes = static_cast<double>(outputs[0].bytes());
    const auto rows =
        static_cast<double>(outputs[0].shape[1] * outputs[0].shape[2] * SizeOf(outputs[0].dtype));
    return {.flops = static_cast<double>(ElementCount(outputs[0].shape)),
            .bytes = 2 * bytes + rows};
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    if (b.Wanted(0)) {
      HEDDLE_RETURN_IF_ERROR(b.Contribute(0, *dy));
    }
    Attributes attributes = b.node().attributes;
    attributes.Set("positions", b.type(b.input(1)).shape[0]);
    return ContributeNode(b, 1, "position_weight_gradient", {*dy}, attributes, Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    RuleList rules(2, 1);
    rules.Add({Cut(0), Whole()}, {Cut(0)});                          // Batch.
    rules.Add({Cut(1), Whole()}, {Cut(1)}, {}, {"first_position"});  // Sequence.
    rules.Add({Cut(2), Cut(1)}, {Cut(2)});                           // Features.
    rules.Add({Sum(), Sum()}, {Sum()});                              // Linear in both together.
    if (inputs[0].shape[1] == inputs[1].shape[0]) {
      rules.Add({Cut(1), Cut(0)}, {Cut(1)});  // Sequence and weight, when every position is used.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(AddPosition);

}  // namespace
}  // namespace heddle::graph
