// Output types, errors and costs of every operator, as docs/reference/operators.md states them.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph/dense_evaluator.h"
#include "tests/support/graph/examples.h"

namespace heddle::graph {
namespace {

using heddle::testing::Bf16;
using heddle::testing::DenseTensor;
using heddle::testing::Evaluate;
using heddle::testing::Example;
using heddle::testing::Examples;
using heddle::testing::F32;
using heddle::testing::I32;
using heddle::testing::RandomTensor;
using ::testing::HasSubstr;

std::vector<std::string> Types(const std::vector<TensorType>& types) {
  std::vector<std::string> text;
  for (const TensorType& type : types) {
    text.push_back(ToString(type));
  }
  return text;
}

TEST(OperatorsTest, AllAreRegisteredAndHaveExamples) {
  std::set<std::string> named;
  for (const Example& example : Examples()) {
    named.insert(example.op);
  }
  std::set<std::string> registered;
  for (const Operator* op : AllOperators()) {
    registered.insert(std::string(op->name()));
    EXPECT_EQ(FindOperator(op->name()), op);
  }
  EXPECT_EQ(registered, named);
  EXPECT_EQ(FindOperator("softmax"), nullptr);
}

TEST(OperatorsTest, InferGivesTheDocumentedTypes) {
  for (const Example& example : Examples()) {
    const auto types = FindOperator(example.op)->Infer(example.inputs, example.attributes);
    ASSERT_TRUE(types.ok()) << example.op << ": " << types.status().ToString();
    EXPECT_EQ(Types(*types), example.outputs) << example.op;
  }
}

TEST(OperatorsTest, InferRefusesAWrongNumberOfInputs) {
  for (const Example& example : Examples()) {
    auto more = example.inputs;
    more.insert(more.end(), 2, F32({2}));
    auto none = example.inputs;
    none.resize(0);
    for (const auto& inputs : {more, none}) {
      const auto types = FindOperator(example.op)->Infer(inputs, example.attributes);
      ASSERT_FALSE(types.ok()) << example.op;
      EXPECT_EQ(types.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(types.status().message(), HasSubstr(example.op + ": "));
    }
  }
}

// Each input in turn gets another extent, rank or element type; most must be refused, with the bad
// type named.
TEST(OperatorsTest, InferNamesTheShapeThatDoesNotFit) {
  Random random(1);
  int refused = 0;
  for (const Example& example : Examples()) {
    const Operator& op = *FindOperator(example.op);
    for (size_t i = 0; i < example.inputs.size(); ++i) {
      std::vector<TensorType> wrong(3, example.inputs[i]);
      wrong[0].shape.back() += 1;
      wrong[1].shape.insert(wrong[1].shape.begin(), 2);
      wrong[2].dtype = wrong[2].dtype == DType::kI32 ? DType::kF32 : DType::kI32;
      for (const TensorType& type : wrong) {
        auto inputs = example.inputs;
        inputs[i] = type;
        const auto types = op.Infer(inputs, example.attributes);
        if (types.ok()) {
          // Another valid use: then the types are what the operator really makes of such inputs.
          std::vector<DenseTensor> dense;
          for (const TensorType& input : inputs) {
            dense.push_back(RandomTensor(input, example.token_bound, random));
          }
          const auto outputs = Evaluate(example.op, example.attributes, dense);
          ASSERT_EQ(outputs.size(), types->size());
          for (size_t o = 0; o < outputs.size(); ++o) {
            EXPECT_EQ(outputs[o].shape, (*types)[o].shape) << example.op << " input " << i;
          }
          continue;
        }
        ++refused;
        EXPECT_EQ(types.status().code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(types.status().message(), HasSubstr(ToString(type)))
            << example.op << " input " << i;
      }
    }
  }
  EXPECT_GT(refused, 150);
}

struct Refused {
  std::string op;
  std::vector<TensorType> inputs;
  Attributes attributes;
  std::string message;
};

void ExpectRefusals(const std::vector<Refused>& cases) {
  for (const Refused& refused : cases) {
    const auto types = FindOperator(refused.op)->Infer(refused.inputs, refused.attributes);
    ASSERT_FALSE(types.ok()) << refused.message;
    EXPECT_EQ(types.status().message(), refused.message);
  }
}

TEST(OperatorsTest, ErrorsSayWhatWasExpected) {
  const Attributes heads = {{"heads", int64_t{4}}, {"kv_heads", int64_t{3}}};
  const std::vector<Refused> cases = {
      {"linear",
       {F32({2, 3}), F32({4, 5})},
       {},
       "linear: weight is fp32[4, 5], expected fp32[4, 3] to fit x fp32[2, 3]"},
      {"linear",
       {Bf16({2, 3}), Bf16({4, 3}), Bf16({4})},
       {},
       "linear: bias is bf16[4], expected fp32[4] to fit weight bf16[4, 3]"},
      {"linear", {F32({2, 3})}, {}, "linear: 1 inputs, expected 2 to 3"},
      {"add",
       {F32({2, 3}), F32({3, 2})},
       {},
       "add: b is fp32[3, 2], expected fp32[2, 3] to fit a fp32[2, 3]"},
      {"rms_norm",
       {Bf16({2, 3}), Bf16({3})},
       {{"epsilon", 1e-5}},
       "rms_norm: weight is bf16[3], expected fp32[3] to fit x bf16[2, 3]"},
      {"attention",
       {F32({1, 2, 8}), F32({1, 2, 6}), F32({1, 2, 6})},
       heads,
       "attention: 4 heads and 3 key/value heads do not fit q fp32[1, 2, 8]"},
      {"rope",
       {F32({1, 2, 9})},
       {{"head_dim", int64_t{3}}, {"inverse", int64_t{0}}, {"theta", 1e4}},
       "rope: heads of 3 elements do not fit x fp32[1, 2, 9]: an even divisor of 9 is needed"},
      {"add_position",
       {F32({1, 5, 8}), F32({4, 8})},
       {},
       "add_position: weight fp32[4, 8] has fewer positions than x fp32[1, 5, 8]"},
      {"embedding",
       {F32({1, 5}), F32({4, 8})},
       {},
       "embedding: tokens is fp32[1, 5], expected int32 of 2 dimensions"},
      {"dropout",
       {F32({1, 5, 2})},
       {{"p", 1.0}, {"site", int64_t{0}}},
       "dropout: probability 1 is not in [0, 1), or site 0 is negative"},
      {"gelu",
       {I32({1, 5})},
       {},
       "gelu: x is int32[1, 5], expected floating point of at least 0 dimensions"},
  };
  ExpectRefusals(cases);
}

TEST(OperatorsTest, ErrorsSayWhatAShareIsNotPartOf) {
  // Heads 1 to 4 of groups of two read three key/value heads.
  const Attributes later_heads = {{"first_head", int64_t{1}},
                                  {"group", int64_t{2}},
                                  {"heads", int64_t{4}},
                                  {"kv_heads", int64_t{2}}};
  ExpectRefusals({
      {"position_weight_gradient",
       {F32({1, 5, 8})},
       {{"first_position", int64_t{4}}, {"positions", int64_t{8}}},
       "position_weight_gradient: dy fp32[1, 5, 8] is longer than the 4 positions from 4 on"},
      {"dropout",
       {F32({1, 5, 2})},
       {{"features", int64_t{3}}, {"first_feature", int64_t{2}}, {"p", 0.5}, {"site", int64_t{0}}},
       "dropout: x fp32[1, 5, 2] is no share of 3 features"},
      {"attention",
       {F32({1, 2, 8}), F32({1, 2, 4}), F32({1, 2, 4})},
       later_heads,
       "attention: 4 heads and 2 key/value heads do not fit q fp32[1, 2, 8]"},
  });
}

Cost CostOfExample(const std::string& op,
                   const std::vector<TensorType>& inputs,
                   const Attributes& attributes) {
  const auto types = FindOperator(op)->Infer(inputs, attributes);
  EXPECT_TRUE(types.ok());
  return FindOperator(op)->CostOf(inputs, *types, attributes);
}

TEST(OperatorsTest, MatrixProductsCostTwoFlopsAnElementProduct) {
  const double product = 2.0 * 4 * 5 * 6 * 7;
  const Cost forward = CostOfExample("linear", {F32({4, 5, 6}), F32({7, 6})}, {});
  EXPECT_EQ(forward.flops, product);
  EXPECT_EQ(forward.bytes, 4.0 * (4 * 5 * 6 + 7 * 6 + 4 * 5 * 7));
  EXPECT_EQ(CostOfExample("linear_input_gradient", {F32({4, 5, 7}), F32({7, 6})}, {}).flops,
            product);
  EXPECT_EQ(CostOfExample("linear_weight_gradient", {F32({4, 5, 7}), F32({4, 5, 6})}, {}).flops,
            product);
}

TEST(OperatorsTest, CostsAreFiniteAndCountEveryOutput) {
  for (const Example& example : Examples()) {
    const Cost cost = CostOfExample(example.op, example.inputs, example.attributes);
    const auto types = FindOperator(example.op)->Infer(example.inputs, example.attributes);
    double written = 0;
    for (const TensorType& type : *types) {
      written += static_cast<double>(type.bytes());
    }
    EXPECT_GE(cost.bytes, written) << example.op;
    EXPECT_LT(cost.bytes, 1e5) << example.op;
    if (example.op != "embedding") {
      EXPECT_GT(cost.flops, 0) << example.op;
    }
  }
}

TEST(OperatorsTest, AttentionCountsTheBlocksThatAreComputed) {
  auto flops = [](int64_t length, const std::string& op) {
    const TensorType q = F32({2, length, 8});
    const Attributes heads = {{"heads", int64_t{2}}, {"kv_heads", int64_t{2}}};
    return op == "attention" ? CostOfExample(op, {q, q, q}, heads).flops
                             : CostOfExample(op, {q, q, q, q, q, F32({2, 2, length})}, heads).flops;
  };
  // Two products, two flops each, batch 2, two heads of 4 elements; then the pairs of blocks of 32
  // queries.
  const double per_pair = 2.0 * 2 * 2 * 8;
  EXPECT_EQ(flops(16, "attention"), per_pair * 16 * 16);
  EXPECT_EQ(flops(64, "attention"), per_pair * (32 * 32 + 32 * 64));
  EXPECT_EQ(flops(70, "attention"), per_pair * (32 * 32 + 32 * 64 + 6 * 70));
  EXPECT_EQ(flops(70, "attention_gradient"), 2.5 * flops(70, "attention"));
}

}  // namespace
}  // namespace heddle::graph
