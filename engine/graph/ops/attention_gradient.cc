/// \file
/// dq, dk, dv of attention from do, q, k, v, o and lse: the probabilities are computed again from
/// lse (Dao et al. 2022). Attributes as attention's. Where a share has some of a key/value head's
/// query heads only, its dk and dv are these heads' addends.
#include "engine/graph/head_groups.h"
#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

class AttentionGradient final : public Operator {
 public:
  std::string_view name() const override { return "attention_gradient"; }

  Result<std::vector<TensorType>> Infer(std::span<const TensorType> inputs,
                                        const Attributes& attributes) const override {
    HEDDLE_RETURN_IF_ERROR(CheckCount(name(), inputs, 6, 6));
    const TensorType& q = inputs[1];
    const TensorType& k = inputs[2];
    const TensorType& v = inputs[3];
    const HeadGroups heads(attributes);
    HEDDLE_RETURN_IF_ERROR(CheckRank(name(), "q", q, 3));
    if (!heads.Fit() || q.shape[2] % heads.heads != 0) {
      return InvalidArgumentError(
          "attention_gradient: {} heads and {} key/value heads do not fit q {}", heads.heads,
          heads.kv_heads, ToString(q));
    }
    const TensorType kv{q.dtype,
                        {q.shape[0], q.shape[1], q.shape[2] / heads.heads * heads.kv_heads}};
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "k", k, kv, "q", q));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "v", v, kv, "q", q));
    const TensorType lse{MasterType(q.dtype), {q.shape[0], heads.heads, q.shape[1]}};
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "do", inputs[0], q, "q", q));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "o", inputs[4], q, "q", q));
    HEDDLE_RETURN_IF_ERROR(CheckType(name(), "lse", inputs[5], lse, "q", q));
    return std::vector<TensorType>{q, kv, kv};
  }

  Cost CostOf(std::span<const TensorType> inputs,
              std::span<const TensorType> outputs,
              const Attributes& /*attributes*/) const override {
    // Five products (scores again, dp, dv, dq, dk) of d multiplications and additions for every
    // query, head and key that it sees.
    const Shape& q = inputs[1].shape;
    const double products = static_cast<double>(q[0] * q[2]) * AttendedPairs(q[1]);
    return {.flops = 10 * products, .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
  }

  std::vector<ShardingRule> ShardingRules(std::span<const TensorType> inputs,
                                          std::span<const TensorType> /*outputs*/,
                                          const Attributes& attributes) const override {
    RuleList rules(6, 3);
    rules.Add(std::vector(6, Cut(0)), std::vector(3, Cut(0)));  // Batch.
    rules.Add({Sum(), Whole(), Whole(), Whole(), Whole(), Whole()},
              std::vector(3, Sum()));  // Linear in do.
    if (attributes.FindInt("group")) {
      return rules.Take();  // The heads of a share are not cut again.
    }
    const HeadGroups heads(attributes);
    const int64_t d = inputs[1].shape[2] / heads.heads;
    const Placement q = Cut(2, d);
    const Placement kv = Cover(2, d);
    const Placement groups = Cut(2, heads.group * d);
    rules.Add({groups, groups, q, q, groups, Cut(1, heads.group)}, {groups, q, q},
              {"heads", "kv_heads"});  // Groups of query heads with their key/value head.
    if (heads.group > 1) {
      rules.Add({q, q, kv, kv, q, Cut(1)}, {q, CoverSum(2, d), CoverSum(2, d)},
                {"heads", "kv_heads"}, {"first_head"},
                {{"group", heads.group}});  // Query heads, within a group too.
    }
    return rules.Take();
  }
};

HEDDLE_REGISTER_OPERATOR(AttentionGradient);

}  // namespace
}  // namespace heddle::graph
