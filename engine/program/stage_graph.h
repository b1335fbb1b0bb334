/// \file
/// The graphs that the members of a group run: what a stage's layout makes of the job's graph, with
/// the tensors that cross the stage's edges, and how each weight gradient comes to the pieces of its
/// parameter.
#pragma once

#include <map>
#include <vector>

#include "engine/graph/sharding/localise.h"
#include "engine/program/plan.h"

namespace heddle::program {

/// What a tensor of one microbatch is to the gradient of a piece of its parameter: an addend from
/// each of `members`, by position. A copy that several members compute is one member's.
struct Contribution {
  graph::ParameterId parameter = -1;
  int piece = 0;
  int use = 0;
  std::vector<int> members = {};
};

/// What a stage of a group runs.
struct StageGraph {
  /// The job's whole graph. What crosses the stage's edges is made as it travels where it is
  /// computed; weight gradients are exchanged where they do not come out as their parameter is cut.
  graph::ShardedGraph sharded;
  graph::TensorId loss = -1;  ///< The tensor of `sharded` that every member has whole.
  /// By tensor of `sharded`. Together the uses of a parameter within the stage's segments.
  std::map<graph::TensorId, std::vector<Contribution>> contributions = {};
};

/// The graph of a stage with a layout. What crosses the stage's edges travels in as many parts as the
/// smallest of the groups that compute and read it has members, and each element once: member i
/// sends its part to member i of the other group. The parts are even runs of the second dimension;
/// what is shorter along it is one part. Errors: those of graph::Complete.
Result<StageGraph> BuildStageGraph(const graph::Graph& graph, const Plan& plan, const Stage& stage);

/// What the graph of a stage depends on beside the job's graph and the plan's layouts.
std::vector<int> StageGraphKey(const Plan& plan, const Stage& stage);

/// The graph whose nodes and tensors the Program of `rank` names, with the types and attributes of
/// what that worker has: its local graph if it is a member of a group, otherwise the job's graph.
/// Errors: kInvalidArgument (no such rank); those of graph::Complete.
Result<graph::Graph> MemberGraph(const graph::Graph& graph, const Plan& plan, int rank);

}  // namespace heddle::program
