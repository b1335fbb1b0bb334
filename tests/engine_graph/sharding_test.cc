// Every sharding rule is executed (tests/support/graph/sharding.h) by an evaluator that knows
// nothing of rules, and every change of one is found.
#include "tests/support/graph/sharding.h"

#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace heddle::graph {
namespace {

using heddle::testing::AttributeFault;
using heddle::testing::Evaluate;
using heddle::testing::Example;
using heddle::testing::Examples;
using heddle::testing::Name;
using heddle::testing::OperatorCall;
using heddle::testing::RandomCall;
using heddle::testing::RandomTensor;
using heddle::testing::RulesOf;
using heddle::testing::RunDensely;
using heddle::testing::TestSeed;
using heddle::testing::Violation;

/// Whether one of some random cuts shows that the rule does not hold: a cut between two groups of
/// heads shows nothing of what the parts of a group do.
bool Refuted(const Example& example,
             const ShardingRule& rule,
             Random& random,
             const AttributeFault& fault = {}) {
  constexpr int kRounds = 24;
  for (int round = 0; round < kRounds; ++round) {
    if (!Violation(RandomCall(example, random), rule, RunDensely, random, fault).empty()) {
      return true;
    }
  }
  return false;
}

TEST(ShardingTest, EveryRuleHoldsForUnevenShares) {
  Random random(TestSeed());
  int rules = 0;
  for (const Example& example : Examples()) {
    for (const ShardingRule& rule : RulesOf(example)) {
      ++rules;
      for (int round = 0; round < 8; ++round) {
        EXPECT_EQ(Violation(RandomCall(example, random), rule, RunDensely, random), "")
            << example.op << example.attributes.ToString() << ": " << Name(rule);
      }
    }
  }
  EXPECT_GT(rules, 150);
}

// The check itself must be able to fail: a rule with any other output placement is refuted.
TEST(ShardingTest, EveryChangedRuleIsRefuted) {
  Random random(TestSeed());
  for (const Example& example : Examples()) {
    const auto types = FindOperator(example.op)->Infer(example.inputs, example.attributes);
    for (const ShardingRule& rule : RulesOf(example)) {
      for (size_t o = 0; o < rule.outputs.size(); ++o) {
        std::vector<Placement> others = {Placement::Replicate(), Placement::Partial()};
        if (rule.outputs[o] != Placement::Replicate()) {  // The largest of equal ones is each.
          others.push_back(Placement::PartialMax());
        }
        for (size_t d = 0; d < (*types)[o].shape.size(); ++d) {
          others.push_back(Placement::Shard(static_cast<int>(d), rule.outputs[o].unit));
        }
        if (rule.outputs[o].cover) {
          others.push_back(Placement::Cover(rule.outputs[o].dim, rule.outputs[o].unit));
        }
        for (const Placement& other : others) {
          ShardingRule changed = rule;
          changed.outputs[o] = other;
          if (other != rule.outputs[o]) {
            EXPECT_TRUE(Refuted(example, changed, random)) << example.op << ": " << Name(changed);
          }
        }
      }
    }
  }
}

// A share that begins elsewhere than it is told, has one more of something or as many as the whole
// computes something else.
TEST(ShardingTest, EveryWrongAttributeOfAShareIsRefuted) {
  Random random(TestSeed());
  int checked = 0;
  for (const Example& example : Examples()) {
    for (const ShardingRule& rule : RulesOf(example)) {
      std::vector<std::string> names = rule.scaled;
      names.insert(names.end(), rule.first.begin(), rule.first.end());
      for (const auto& [name, value] : rule.given) {
        names.push_back(name);
      }
      for (const std::string& name : names) {
        const std::string what = example.op + ": " + Name(rule) + ": " + name;
        EXPECT_TRUE(Refuted(example, rule, random, [&](Attributes& local) {
          local.Set(name, local.Int(name) + 1);
        })) << what;
        const int64_t whole = example.attributes.FindInt(name).value_or(0);
        if (!rule.given.contains(name) || rule.given.at(name) != whole) {
          EXPECT_TRUE(Refuted(example, rule, random, [&](Attributes& local) {
            local.Set(name, whole);
          })) << what;
        }
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 20);
}

// What shares of the vocabulary run in place of cross_entropy.
TEST(ShardingTest, TheLossOfItsPartsIsTheLoss) {
  Random random(TestSeed());
  const auto logits = RandomTensor({DType::kF32, {4, 5, 7}}, 0, random);
  const auto targets = RandomTensor({DType::kI32, {4, 5}}, 7, random);
  const Attributes scale = {{"scale", 0.25}};
  const auto whole = Evaluate("cross_entropy", scale, std::vector{logits, targets});
  const auto most = Evaluate("row_max", {}, std::vector{logits})[0];
  const auto sums = Evaluate("exp_sum", {}, std::vector{logits, targets, most})[0];
  const auto parts = Evaluate("cross_entropy_of_sums", scale, std::vector{most, sums});
  for (size_t o = 0; o < whole.size(); ++o) {
    ASSERT_EQ(parts[o].shape, whole[o].shape);
    for (size_t e = 0; e < whole[o].values.size(); ++e) {
      EXPECT_NEAR(parts[o].values[e], whole[o].values[e], 1e-12);
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
        EXPECT_FALSE(rules[a].inputs == rules[b].inputs && rules[a].outputs == rules[b].outputs)
            << example.op << ": " << Name(rules[a]);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::graph
