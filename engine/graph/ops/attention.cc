/// \file
/// Causal grouped-query attention (Ainslie et al. 2023): o [B, T, H·d] = softmax(q kᵀ / sqrt(d)) v
/// with q [B, T, H·d], k and v [B, T, G·d]; head h reads key/value head h / (H/G). lse master [B,
/// H, T] is the logarithm of the softmax's denominator, which the backward node reads. Attributes
/// `heads` (H), `kv_heads` (G); of a share of the query heads, with the key/value heads that these
/// read, also `group` (H/G of the whole) and `first_head`.
#include "engine/graph/head_groups.h"
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class Attention final : public Operator {
 public:
  std::string_view name() const override { return "attention"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 3, 3));
    const TensorType& q = inputs[0];
    const TensorType& k = inputs[1];
    const TensorType& v = inputs[2];
    const HeadGroups heads(attributes);
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "q", q, 3));
    if (!heads.Fit() || q.shape[2] % heads.heads != 0) {
      return InvalidArgumentError("attention: {} heads and {} key/value heads do not fit q {}",
                                  heads.heads, heads.kv_heads, ToString(q));
    }
    const TensorType kv{q.dtype,
                        {q.shape[0], q.shape[1], q.shape[2] / heads.heads * heads.kv_heads}};
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "k", k, kv, "q", q));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "v", v, kv, "q", q));
    const TensorType lse{MasterType(q.dtype), {q.shape[0], heads.heads, q.shape[1]}};
    return std::vector<TensorType>{q, lse};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    // Two products of d multiplications and additions for every query, head and key that it sees.
    const Shape& q = inputs[0].shape;
    const double products = static_cast<double>(q[0] * q[2]) * AttendedPairs(q[1]);
    return {.flops = 4 * products, .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  Status Gradient(GradientBuilder& b) const override {
    const auto dy = b.OutputGradient(0);
    if (!dy) {
      return Status::Ok();
    }

    if (!b.Wanted(0) && !b.Wanted(1) && !b.Wanted(2)) {
      return Status::Ok();
    }
    HEDDLE_ASSIGN_OR_RETURN(const auto gradients, b.Apply("attention_gradient",
                                                          {*dy, b.input(0), b.input(1), b.input(2),
                                                           b.output(0), b.output(1)},
                                                          b.node().attributes, Phase::kBackward));
    for (int i = 0; i < 3; ++i) {
      if (b.Wanted(i)) {
        HEDDLE_RETURN_IF_ERROR(b.Contribute(i, gradients[static_cast<size_t>(i)]));
      }
    }
    return Status::Ok();
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& attributes) const override {
    RuleList rules(3, 2);
    rules.Add({Cut(0), Cut(0), Cut(0)}, {Cut(0), Cut(0)});   // Batch.
    rules.Add({Whole(), Whole(), Sum()}, {Sum(), Whole()});  // Linear in v.
    if (attributes.FindInt("group")) {
      return rules.Take();  // The heads of a share are not cut again.
    }
    const HeadGroups heads(attributes);
    const int64_t d = inputs[0].shape[2] / heads.heads;
    const Placement groups = Cut(2, heads.group * d);
    rules.Add({groups, Cut(2, d), Cut(2, d)}, {groups, Cut(1, heads.group)},
              {"heads", "kv_heads"});  // Groups of query heads with their key/value head.
    if (heads.group > 1) {
      rules.Add({Cut(2, d), Cover(2, d), Cover(2, d)}, {Cut(2, d), Cut(1)}, {"heads", "kv_heads"},
                {"first_head"}, {{"group", heads.group}});  // Query heads, within a group too.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(Attention);

}  // namespace
}  // namespace heddle::graph
