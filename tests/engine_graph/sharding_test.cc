// Every sharding rule is executed: the operator on whole inputs, and share by share on inputs
// placed as the rule says (uneven shares), must give the same tensors once the outputs are put
// together as the rule says. The evaluator knows nothing of rules
// (tests/support/graph/dense_evaluator.h).
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "tests/engine_graph/examples.h"
#include "tests/support/graph/dense_evaluator.h"
#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::DenseContext;
using heddle::testing::DenseTensor;
using heddle::testing::Evaluate;
using heddle::testing::RandomTensor;
using heddle::testing::TestSeed;
using Kind = Placement::Kind;

std::string Name(const Placement& placement) {
  switch (placement.kind) {
    case Kind::kReplicate:
      return "Replicate";
    case Kind::kPartial:
      return "Partial";
    case Kind::kShard:
      return fmt::format("Shard({}, {})", placement.dim, placement.unit);
  }
  return "";
}

std::string Name(const ShardingRule& rule) {
  std::string text;
  for (const Placement& placement : rule.inputs) {
    text += Name(placement) + " ";
  }
  text += "->";
  for (const Placement& placement : rule.outputs) {
    text += fmt::format(" {}", Name(placement));
  }
  return text;
}

/// [begin, end) along `dim`; the other dimensions whole.
DenseTensor Slice(const DenseTensor& whole, int dim, int64_t begin, int64_t end) {
  Shape shape = whole.shape;
  shape[static_cast<size_t>(dim)] = end - begin;
  DenseTensor part(shape);
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < shape.size(); ++d) {
    inner *= shape[d];
  }
  const int64_t row = (end - begin) * inner;
  const int64_t whole_row = whole.shape[static_cast<size_t>(dim)] * inner;
  for (int64_t e = 0; e < ElementCount(shape); ++e) {
    part[e] = whole[e / row * whole_row + begin * inner + e % row];
  }
  return part;
}

/// Cuts of `units` into shares of at least one unit: 0 = c0 < c1 < … = units.
std::vector<int64_t> RandomCuts(int64_t units, Random& random) {
  const int64_t shares = std::min<int64_t>(units, random.Between(2, 3));
  std::vector<int64_t> cuts = {0};
  for (int64_t share = 1; share < shares; ++share) {
    cuts.push_back(random.Between(cuts.back() + 1, units - (shares - share)));
  }
  cuts.push_back(units);
  return cuts;
}

/// Units that the rule cuts, the same for every sharded tensor; nothing when it shards none or they
/// disagree.
std::optional<int64_t> Units(const ShardingRule& rule,
                             const std::vector<DenseTensor>& inputs,
                             const std::vector<DenseTensor>& outputs) {
  std::optional<int64_t> units;
  bool agree = true;
  auto visit = [&](const Placement& placement, const DenseTensor& tensor) {
    if (placement.kind != Kind::kShard) {
      return;
    }
    const auto dim = static_cast<size_t>(placement.dim);
    if (dim >= tensor.shape.size() || tensor.shape[dim] % placement.unit != 0) {
      agree = false;
      return;
    }
    const int64_t here = tensor.shape[dim] / placement.unit;
    agree = agree && units.value_or(here) == here;
    units = here;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    visit(rule.inputs[i], inputs[i]);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    visit(rule.outputs[i], outputs[i]);
  }
  return agree ? std::optional(units.value_or(3)) : std::nullopt;
}

/// What each share holds of a tensor under a placement.
std::vector<DenseTensor> Place(const DenseTensor& whole,
                               const Placement& placement,
                               const std::vector<int64_t>& cuts,
                               Random& random) {
  const size_t shares = cuts.size() - 1;
  std::vector<DenseTensor> parts(shares, whole);
  if (placement.kind == Kind::kShard) {
    for (size_t s = 0; s < shares; ++s) {
      parts[s] =
          Slice(whole, placement.dim, cuts[s] * placement.unit, cuts[s + 1] * placement.unit);
    }
  } else if (placement.kind == Kind::kPartial) {
    for (size_t e = 0; e < whole.values.size(); ++e) {
      double rest = whole.values[e];
      for (size_t s = 0; s + 1 < shares; ++s) {
        parts[s].values[e] = 2 * random.Uniform() - 1;
        rest -= parts[s].values[e];
      }
      parts.back().values[e] = rest;
    }
  }
  return parts;
}

bool Near(const DenseTensor& a, const DenseTensor& b) {
  if (a.shape != b.shape) {
    return false;
  }
  for (size_t e = 0; e < a.values.size(); ++e) {
    if (!(std::abs(a.values[e] - b.values[e]) <= 1e-9 * (1 + std::abs(b.values[e])))) {
      return false;
    }
  }
  return true;
}

/// Whether the shares, read as `placement` says, are the whole tensor.
bool Matches(const std::vector<DenseTensor>& parts,
             const DenseTensor& whole,
             const Placement& placement,
             const std::vector<int64_t>& cuts) {
  DenseTensor sum(whole.shape);
  for (size_t s = 0; s < parts.size(); ++s) {
    if (placement.kind == Kind::kShard) {
      if (static_cast<size_t>(placement.dim) >= whole.shape.size() ||
          !Near(parts[s], Slice(whole, placement.dim, cuts[s] * placement.unit,
                                cuts[s + 1] * placement.unit))) {
        return false;
      }
      continue;
    }
    if (parts[s].shape != whole.shape) {
      return false;
    }
    if (placement.kind == Kind::kReplicate && !Near(parts[s], whole)) {
      return false;
    }
    for (size_t e = 0; e < sum.values.size(); ++e) {
      sum.values[e] += parts[s].values[e];
    }
  }
  return placement.kind != Kind::kPartial || Near(sum, whole);
}

/// Attributes as one share sees them.
Attributes LocalAttributes(const Attributes& attributes,
                           const ShardingRule& rule,
                           int64_t share,
                           int64_t units) {
  Attributes local = attributes;
  for (const std::string& name : rule.scaled) {
    local.Set(name, attributes.Int(name) * share / units);
  }
  return local;
}

struct Case {
  const Example& example;
  std::vector<DenseTensor> inputs;
  std::vector<DenseTensor> outputs;
};

Case MakeCase(const Example& example, Random& random) {
  Case result{.example = example, .inputs = {}, .outputs = {}};
  for (const TensorType& type : example.inputs) {
    result.inputs.push_back(RandomTensor(type, example.token_bound, random));
  }
  result.outputs = Evaluate(example.op, example.attributes, result.inputs);
  return result;
}

/// Runs the rule once with random cuts. Empty: it holds; otherwise why not.
std::string Violation(const Case& c, const ShardingRule& rule, Random& random) {
  if (rule.inputs.size() != c.inputs.size() || rule.outputs.size() != c.outputs.size()) {
    return "wrong number of placements";
  }
  const auto units = Units(rule, c.inputs, c.outputs);
  if (!units) {
    return "sharded tensors disagree about the units";
  }
  const std::vector<int64_t> cuts = RandomCuts(*units, random);
  std::vector<std::vector<DenseTensor>> placed;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    placed.push_back(Place(c.inputs[i], rule.inputs[i], cuts, random));
  }
  std::vector<std::vector<DenseTensor>> results(c.outputs.size());
  for (size_t s = 0; s + 1 < cuts.size(); ++s) {
    std::vector<DenseTensor> local;
    std::vector<TensorType> types;
    for (size_t i = 0; i < placed.size(); ++i) {
      local.push_back(placed[i][s]);
      types.push_back({c.example.inputs[i].dtype, placed[i][s].shape});
    }
    const Attributes attributes =
        LocalAttributes(c.example.attributes, rule, cuts[s + 1] - cuts[s], *units);
    // The operator itself must accept a share, and expect what the share gives.
    const auto inferred = FindOperator(c.example.op)->Infer(types, attributes);
    if (!inferred.ok()) {
      return inferred.status().message();
    }
    DenseContext context;
    if (rule.inputs[0] == Placement::Shard(0)) {
      context.first_sample = cuts[s];
    }
    auto outputs = Evaluate(c.example.op, attributes, local, context);
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].shape != (*inferred)[o].shape) {
        return "a share's shape is not the inferred one";
      }
      results[o].push_back(std::move(outputs[o]));
    }
  }
  for (size_t o = 0; o < results.size(); ++o) {
    if (!Matches(results[o], c.outputs[o], rule.outputs[o], cuts)) {
      return fmt::format("output {} is not {}", o, Name(rule.outputs[o]));
    }
  }
  return "";
}

std::vector<ShardingRule> RulesOf(const Example& example) {
  const Operator& op = *FindOperator(example.op);
  const auto outputs = op.Infer(example.inputs, example.attributes);
  return op.ShardingRules(example.inputs, *outputs, example.attributes);
}

TEST(ShardingTest, EveryRuleHoldsForUnevenShares) {
  Random random(TestSeed());
  int rules = 0;
  for (const Example& example : Examples()) {
    for (const ShardingRule& rule : RulesOf(example)) {
      ++rules;
      for (int round = 0; round < 4; ++round) {
        const Case c = MakeCase(example, random);
        EXPECT_EQ(Violation(c, rule, random), "") << example.op << ": " << Name(rule);
      }
    }
  }
  EXPECT_GT(rules, 120);
}

// The check itself must be able to fail: a rule with any other output placement is refuted.
TEST(ShardingTest, EveryChangedRuleIsRefuted) {
  Random random(TestSeed());
  for (const Example& example : Examples()) {
    const Case c = MakeCase(example, random);
    for (const ShardingRule& rule : RulesOf(example)) {
      for (size_t o = 0; o < rule.outputs.size(); ++o) {
        std::vector<Placement> others = {Placement::Replicate(), Placement::Partial()};
        for (size_t d = 0; d < c.outputs[o].shape.size(); ++d) {
          others.push_back(Placement::Shard(static_cast<int>(d), rule.outputs[o].unit));
        }
        for (const Placement& other : others) {
          ShardingRule changed = rule;
          changed.outputs[o] = other;
          if (other != rule.outputs[o]) {
            EXPECT_NE(Violation(c, changed, random), "") << example.op << ": " << Name(changed);
          }
        }
      }
    }
  }
}

TEST(ShardingTest, TheFirstRuleReplicatesAndNoneIsRepeated) {
  for (const Example& example : Examples()) {
    const auto rules = RulesOf(example);
    ASSERT_FALSE(rules.empty());
    for (const auto& placements : {rules[0].inputs, rules[0].outputs}) {
      for (const Placement& placement : placements) {
        EXPECT_EQ(placement, Placement::Replicate()) << example.op;
      }
    }
    for (size_t a = 0; a < rules.size(); ++a) {
      for (size_t b = a + 1; b < rules.size(); ++b) {
        EXPECT_NE(rules[a].inputs, rules[b].inputs) << example.op << ": " << Name(rules[a]);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::graph
