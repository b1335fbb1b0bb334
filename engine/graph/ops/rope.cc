/// \file
/// Rotary position embedding (Su et al. 2021) of x [B, T, H·d], halves rotated as in Hugging Face's
/// Llama: for i < d/2 the pair (x[i], x[i + d/2]) of each head is rotated by the angle t /
/// theta^(2i/d), t the position in the sequence; by its negative when `inverse` is 1. Attributes
/// `head_dim` (d), `theta`, `inverse`; of a share of the sequence `first_position`.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Rope final : public Operator {
 public:
  std::string_view name() const override { return "rope"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 1, 1));
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "x", inputs[0], 3));
    const int64_t head_dim = attributes.Int("head_dim");
    if (head_dim <= 0 || head_dim % 2 != 0 || inputs[0].shape[2] % head_dim != 0) {
      return InvalidArgumentError(
          "rope: heads of {} elements do not fit x {}: an even divisor of {} is needed", head_dim,
          ToString(inputs[0]), inputs[0].shape[2]);
    }
    return std::vector<TensorType>{inputs[0]};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return ElementwiseCost(inputs, outputs, 3);
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    Attributes attributes = b.node().attributes;
    attributes.Set("inverse", 1 - attributes.Int("inverse"));
    return ContributeNode(b, 0, "rope", {*dy}, attributes, Phase::kBackward);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& attributes) const override {
    return RuleList(1, 1)
        .Add({Cut(0)}, {Cut(0)})                          // Batch.
        .Add({Cut(1)}, {Cut(1)}, {}, {"first_position"})  // Sequence.
        .Add({Cut(2, attributes.Int("head_dim"))}, {Cut(2, attributes.Int("head_dim"))})  // Heads.
        .Add({Sum()}, {Sum()})                                                            // Linear.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Rope);

}  // namespace
}  // namespace heddle::graph
