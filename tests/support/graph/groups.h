/// \file
/// Groups of workers that run a graph together, for tests: their local graphs under a layout, and
/// the product's models with layouts that between them cut everything that can be cut.
#pragma once

#include <string>
#include <vector>

#include "tests/support/graph/layouts.h"
#include "tests/support/graph/lockstep.h"

namespace heddle::testing {

struct Group {
  graph::ShardedGraph sharded;
  std::vector<graph::LocalGraph> members;  ///< By position.
};

/// The group of a valid layout.
Group GroupOf(const graph::Graph& graph, const graph::Layout& layout);

/// Runs the members in lockstep on random inputs of `seed`. Why they do not compute what `graph` does, to
/// 1e-9 in every tensor; empty: they do.
std::string Violation(const graph::Graph& graph, const Group& group, uint64_t seed);

/// The sharded graph as text: a line for each step.
std::string ToString(const graph::ShardedGraph& sharded);

/// Two layers of eight heads; GPT-2 with dropout.
graph::ModelConfig SmallModel(graph::ModelFamily family, int64_t kv_heads, bool tied);

/// Two samples of five tokens in fp64.
graph::Graph SmallTrainingGraph(const graph::ModelConfig& config);

struct GroupCase {
  std::string name;
  graph::ModelConfig config;
  TensorParallel parallel;
};

std::vector<GroupCase> GroupCases();

}  // namespace heddle::testing
