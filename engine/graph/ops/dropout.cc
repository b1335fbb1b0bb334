/// \file
/// y = x · mask / (1 − p), x [B, T, D]. The mask's element is 1 with probability 1 − p, a function
/// of (seed, step, sample, `site`, element of the sample), so that no plan changes it. Attributes
/// `p`, and `site`: a number of this node's own; of a share `first_position`, `first_feature` and
/// `features`, the D of the whole, which number its elements as the whole does.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Dropout final : public Operator {
 public:
  std::string_view name() const override { return "dropout"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "x", inputs[0], 3));
    const double p = attributes.Float("p");
    if (!(p >= 0 && p < 1) || attributes.Int("site") < 0) {
      return InvalidArgumentError(
          "dropout: probability {} is not in [0, 1), or site {} is negative", p,
          attributes.Int("site"));
    }
    const int64_t last = First(attributes, "first_feature") + inputs[0].shape[2];
    if (First(attributes, "first_position") < 0 || First(attributes, "first_feature") < 0 ||
        last > attributes.FindInt("features").value_or(last)) {
      return InvalidArgumentError("dropout: x {} is no share of {} features", ToString(inputs[0]),
                                  attributes.FindInt("features").value_or(last));
    }
    return std::vector<TensorType>{inputs[0]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 12);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    return ContributeNode(b, 0, "dropout", {*dy}, b.node().attributes, Phase::kBackward);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& attributes) const override {
    const int64_t features = attributes.FindInt("features").value_or(inputs[0].shape[2]);
    return RuleList(1, 1)
        .Add({Cut(0)}, {Cut(0)})  // Batch: the context of a share tells its first sample.
        .Add({Cut(1)}, {Cut(1)}, {}, {"first_position"})                           // Sequence.
        .Add({Cut(2)}, {Cut(2)}, {}, {"first_feature"}, {{"features", features}})  // Features.
        .Add({Sum()}, {Sum()})                                                     // Linear.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Dropout);

}  // namespace
}  // namespace heddle::graph
