/// \file
/// y [B, T, D] = weight[tokens]: tokens int32 [B, T], weight [V, D]. A share of the vocabulary has
/// the rows from its attribute `first_row` on; where a token is another's, y is -0.0, which changes
/// no bit of the sum. (+0.0 would: it makes +0.0 of -0.0.)
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Embedding final : public Operator {
 public:
  std::string_view name() const override { return "embedding"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& tokens = inputs[0];
    const TensorType& weight = inputs[1];
    if (tokens.dtype != DType::kI32 || tokens.shape.size() != 2) {
      return InvalidArgumentError("embedding: tokens is {}, expected int32 of 2 dimensions",
                                  ToString(tokens));
    }
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "weight", weight, 2));
    return std::vector<TensorType>{
        {weight.dtype, {tokens.shape[0], tokens.shape[1], weight.shape[1]}}};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    // Only the rows of the tokens are read.
    const auto rows = static_cast<double>(outputs[0].bytes());
    return {.flops = 0, .bytes = static_cast<double>(inputs[0].bytes()) + 2 * rows};
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    Attributes attributes = b.node().attributes;
    attributes.Set("vocabulary", b.type(b.input(1)).shape[0]);
    return ContributeNode(b, 1, "embedding_weight_gradient", {*dy, b.input(0)}, attributes,
                          Phase::kWeight);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(2, 1)
        .Add({Cut(0), Whole()}, {Cut(0)})                    // Batch.
        .Add({Cut(1), Whole()}, {Cut(1)})                    // Sequence.
        .Add({Whole(), Cut(1)}, {Cut(2)})                    // Features.
        .Add({Whole(), Cut(0)}, {Sum()}, {}, {"first_row"})  // Vocabulary.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Embedding);

}  // namespace
}  // namespace heddle::graph
