/// \file
/// Executes a sharding rule: an operator on whole inputs, and share by share on inputs placed as
/// the rule says, must give the same tensors once the outputs are put together as the rule says.
/// Knows what placements and rules mean (engine/graph/operator.h), and nothing of operators.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/operator.h"
#include "tests/support/graph/dense_evaluator.h"
#include "tests/support/graph/examples.h"

namespace heddle::testing {

/// An operator to run: its name, attributes, inputs' types and values.
struct OperatorCall {
  std::string op;
  graph::Attributes attributes;
  std::vector<graph::TensorType> types;
  std::vector<DenseTensor> inputs;
};

/// What runs a call: the dense evaluator, or kernels.
using OperatorRunner =
    std::function<std::vector<DenseTensor>(const OperatorCall& call, const DenseContext& context)>;

std::vector<DenseTensor> RunDensely(const OperatorCall& call, const DenseContext& context);

/// An example with random values for its inputs.
OperatorCall RandomCall(const Example& example, Random& random);

/// All rules of the example's operator.
std::vector<graph::ShardingRule> RulesOf(const Example& example);

/// "Shard(2, 4) Replicate -> Partial".
std::string Name(const graph::ShardingRule& rule);

/// What a share's attributes are made to be, to be found.
using AttributeFault = std::function<void(graph::Attributes& local)>;

/// Runs the rule once for random shares, which are uneven and some of them empty: those run
/// nothing. Empty text: it holds; otherwise why not.
std::string Violation(const OperatorCall& whole,
                      const graph::ShardingRule& rule,
                      const OperatorRunner& runner,
                      Random& random,
                      const AttributeFault& fault = {});

}  // namespace heddle::testing
