/// \file
/// loss fp64 [] and lse master [B, T] of cross_entropy from its parts: most master [B, T] of
/// row_max and sums master [B, T, 2] of exp_sum, both of the whole vocabulary. lse = most + log(sum
/// of exponentials). Attribute `scale`.
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class CrossEntropyOfSums final : public Operator {
 public:
  std::string_view name() const override { return "cross_entropy_of_sums"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& /*attributes*/) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 2, 2));
    const TensorType& most = inputs[0];
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "most", most, 2));
    HEDDLE_RETURN_IF_ERROR(CheckType(
        name(), "sums", inputs[1], {most.dtype, {most.shape[0], most.shape[1], 2}}, "most", most));
    return std::vector<TensorType>{{DType::kF64, {}}, most};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    return {.flops = 4 * static_cast<double>(ElementCount(inputs[0].shape)),
            .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> /*inputs*/,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& /*attributes*/) const override {
    return RuleList(2, 2)
        .Add({Cut(0), Cut(0)}, {Sum(), Cut(0)})  // Batch.
        .Add({Cut(1), Cut(1)}, {Sum(), Cut(1)})  // Sequence.
        .Take();
  }
};

HEDDLE_REGISTER_OPERATOR(CrossEntropyOfSums);

}  // namespace
}  // namespace heddle::graph
