/// \file
/// loss fp64 [] = scale · Σ −log softmax(logits)[target] over all positions: logits [B, T, V],
/// targets int32 [B, T]. lse master [B, T] is the logarithm of the softmax's denominator, which the
/// backward node reads. Attribute `scale`: the only scaling of gradients. Shares of the vocabulary
/// run its parts instead: row_max, exp_sum, cross_entropy_of_sums.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class CrossEntropy final : public Operator {
 public:
  std::string_view name() const override { return "cross_entropy"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& logits = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "logits", logits, 3));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "targets", inputs[1],
                                     {DType::kI32, {logits.shape[0], logits.shape[1]}}, "logits",
                                     logits));
    return std::vector<TensorType>{{DType::kF64, {}}, StatisticsType(logits)};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 4 * static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  Status Gradient(GradientBuilder& b) const override {
    // The loss is the end of the graph: its own gradient is 1, which no tensor carries.
    return ContributeNode(b, 0, "cross_entropy_gradient", {b.input(0), b.input(1), b.output(1)},
                          b.node().attributes, Phase::kBackward);
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(2, 2)
        .Add({Cut(0), Cut(0)}, {Sum(), Cut(0)})  // Batch.
        .Add({Cut(1), Cut(1)}, {Sum(), Cut(1)})  // Sequence.
        .Take();
  }

  std::vector<OperatorPart> Parts(std::span<const TensorType> /*inputs*/,
                                  const Attributes& attributes) const override {
    return {{.op = "row_max", .attributes = {}, .inputs = {0}},
            {.op = "exp_sum", .attributes = {}, .inputs = {0, 1, 2}},
            {.op = "cross_entropy_of_sums", .attributes = attributes, .inputs = {2, 3}}};
  }
};

HEDDLE_REGISTER_OPERATOR(CrossEntropy);

}  // namespace
}  // namespace heddle::graph
