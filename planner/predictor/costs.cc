#include "planner/predictor/costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/graph/operator.h"
#include "engine/program/lowering/joint_sums.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/memory.h"
#include "engine/program/slices.h"
#include "engine/program/stages.h"

namespace heddle::planner {
namespace {

using graph::Node;
using graph::Phase;
using graph::Tensor;
using graph::TensorKind;

bool IsStored(const Tensor& tensor) {
  return tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kGradient;
}

/// Adds the values that leave their segment: forwards they cross the cuts up to the last reader,
/// backwards those down to the first.
void AddCrossings(const graph::Graph& graph, SegmentTable& table) {
  std::vector<int> low(graph.tensors.size());
  std::vector<int> high(graph.tensors.size());
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    low[t] = high[t] = tensor.producer < 0 ? -1 : graph.node(tensor.producer).segment;
  }
  for (const Node& node : graph.nodes) {
    for (const graph::TensorId input : node.inputs) {
      const size_t t = static_cast<size_t>(input);
      if (low[t] >= 0) {
        low[t] = std::min(low[t], node.segment);
        high[t] = std::max(high[t], node.segment);
      }
    }
  }
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (low[t] < 0 || !IsStored(tensor)) {
      continue;
    }
    const int home = graph.node(tensor.producer).segment;
    for (int cut = home + 1; cut <= high[t]; ++cut) {
      table.forward_bytes[static_cast<size_t>(cut)] += tensor.type.bytes();
      ++table.forward_messages[static_cast<size_t>(cut)];
    }
    for (int cut = low[t] + 1; cut <= home; ++cut) {
      table.backward_bytes[static_cast<size_t>(cut)] += tensor.type.bytes();
      ++table.backward_messages[static_cast<size_t>(cut)];
    }
  }
}

void AddStash(const graph::Graph& graph, SegmentTable& table) {
  std::set<std::pair<int, graph::TensorId>> kept;
  for (const Node& node : graph.nodes) {
    int64_t bytes = 0;
    for (const graph::TensorId id : node.outputs) {
      bytes += graph.tensor(id).type.bytes();
    }
    for (const graph::TensorId id : node.inputs) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.producer < 0) {
        continue;
      }
      bytes += tensor.type.bytes();
      if (node.phase != Phase::kForward && IsStored(tensor) &&
          graph.node(tensor.producer).phase == Phase::kForward &&
          kept.emplace(node.segment, id).second) {
        table.stash_bytes[static_cast<size_t>(node.segment)] += tensor.type.bytes();
      }
    }
    int64_t& working = table.working_bytes[static_cast<size_t>(node.segment)];
    working = std::max(working, bytes);
  }
}

/// What one collective each sums of the parameters of every segment, as lowering joins them.
std::vector<std::vector<SegmentSum>> SumsOf(const program::GraphAnalysis& analysis,
                                            const SegmentTable& table,
                                            bool divides) {
  std::vector<std::vector<SegmentSum>> by_segment;
  for (const std::vector<graph::ParameterId>& parameters : table.parameters) {
    std::vector<program::SingleSum> singles;
    const auto gathered = [&](size_t i) {
      return divides ? table.gathered_bytes[static_cast<size_t>(parameters[i])] : 0;
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      singles.push_back(program::SumOf(analysis, parameters[i],
                                       table.parameter_bytes[static_cast<size_t>(parameters[i])]));
      singles.back().alone = gathered(i) > 0;
    }
    std::vector<SegmentSum>& sums = by_segment.emplace_back();
    for (const std::vector<size_t>& collective : program::JoinSums(singles)) {
      SegmentSum& sum = sums.emplace_back();
      for (const size_t i : collective) {
        sum.bytes += singles[i].bytes;
        sum.gathered += gathered(i);
      }
    }
  }
  return by_segment;
}

/// By node: true if a stage that recomputes runs it twice, when the whole graph is one stage.
std::vector<bool> RunAgain(const graph::Graph& graph, const program::GraphAnalysis& analysis) {
  const program::Pipeline whole{
      .stages = {{.last_segment = static_cast<int>(graph.segments.size()), .recompute = true}},
      .microbatches = 1};
  std::vector<bool> again(graph.nodes.size(), false);
  for (const program::StageStep& step :
       program::BuildStageTemplate(graph, analysis, whole, 0).backward) {
    if (step.code == program::Code::kRun && graph.node(step.node).phase == Phase::kForward) {
      again[static_cast<size_t>(step.node)] = true;
    }
  }
  return again;
}

}  // namespace

Result<SegmentTable> BuildSegmentTable(const graph::Graph& graph) {
  const size_t segments = graph.segments.size();
  if (segments == 0 || graph.nodes.empty()) {
    return InvalidArgumentError("the graph has no segments");
  }
  for (const Node& node : graph.nodes) {
    if (node.segment < 0 || node.segment >= static_cast<int>(segments)) {
      return InvalidArgumentError("a node of the graph lies in segment {} of {}", node.segment,
                                  segments);
    }
  }
  SegmentTable table;
  table.segments = static_cast<int>(segments);
  table.forward_bytes.resize(segments + 1);
  table.backward_bytes.resize(segments + 1);
  table.forward_messages.resize(segments + 1);
  table.backward_messages.resize(segments + 1);
  table.stash_bytes.resize(segments);
  table.working_bytes.resize(segments);
  table.parameters.resize(segments);
  const std::vector<std::vector<int>> used = program::ParameterSegments(graph);
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::ParameterId id = static_cast<graph::ParameterId>(p);
    for (const int segment : used[p]) {
      table.parameters[static_cast<size_t>(segment)].push_back(id);
    }
    table.parameter_bytes.push_back(ElementCount(graph.parameters[p].shape) *
                                    SizeOf(graph.master_dtype()));
    const bool divisible = program::SlicesOf(graph, WholeBox(graph.parameters[p].shape)) > 1;
    table.gathered_bytes.push_back(
        divisible ? ElementCount(graph.parameters[p].shape) * SizeOf(graph.compute) : 0);
    program::Program holder;
    holder.parameters = {id};
    table.state_bytes.push_back(program::StateBytes(graph, holder));
  }
  AddCrossings(graph, table);
  AddStash(graph, table);
  HEDDLE_ASSIGN_OR_RETURN(const program::GraphAnalysis analysis, program::Analyze(graph));
  table.run_again = RunAgain(graph, analysis);
  table.sums = SumsOf(analysis, table, false);
  table.divided_sums = SumsOf(analysis, table, true);
  return table;
}

WorkerCosts BuildWorkerCosts(const graph::Graph& graph,
                             const SegmentTable& table,
                             const program::WorkerProfile& profile) {
  const size_t segments = static_cast<size_t>(table.segments);
  WorkerCosts costs;
  costs.memory_bytes = profile.memory_bytes;
  costs.message_seconds = profile.instruction_seconds;
  costs.forward.assign(segments + 1, 0);
  costs.backward.assign(segments + 1, 0);
  costs.again.assign(segments + 1, 0);
  costs.update.assign(segments + 1, 0);
  std::map<std::string, double> priced;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto found = priced.emplace(graph::NodeSignature(graph, node), -1.0);
    if (found.second) {
      found.first->second = profile.Seconds(graph, node) + profile.instruction_seconds;
    }
    const size_t slot = static_cast<size_t>(node.segment) + 1;
    double& sum = node.phase == Phase::kForward ? costs.forward[slot] : costs.backward[slot];
    sum += found.first->second;
    costs.again[slot] += table.run_again[n] ? found.first->second : 0;
    for (const graph::TensorId id : node.outputs) {
      const Tensor& tensor = graph.tensor(id);
      if (tensor.kind == TensorKind::kWeightGradient) {
        costs.backward[slot] +=
            profile.ByteSeconds("fold", tensor.type.bytes()) + profile.instruction_seconds;
      }
    }
  }
  for (size_t s = 0; s < segments; ++s) {
    for (const graph::ParameterId id : table.parameters[s]) {
      costs.update[s + 1] +=
          profile.ByteSeconds("update", table.parameter_bytes[static_cast<size_t>(id)]) +
          profile.instruction_seconds;
    }
    costs.forward[s + 1] += costs.forward[s];
    costs.backward[s + 1] += costs.backward[s];
    costs.again[s + 1] += costs.again[s];
    costs.update[s + 1] += costs.update[s];
  }
  return costs;
}

bool SameProfile(const program::WorkerProfile& a, const program::WorkerProfile& b) {
  return a.flops_per_second == b.flops_per_second && a.bytes_per_second == b.bytes_per_second &&
         a.instruction_seconds == b.instruction_seconds && a.memory_bytes == b.memory_bytes &&
         a.seconds == b.seconds;
}

namespace {

bool SameLink(const comm::Link& a, const comm::Link& b) {
  return a.latency_seconds == b.latency_seconds && a.bytes_per_second == b.bytes_per_second &&
         a.peer_bytes_per_second == b.peer_bytes_per_second;
}

bool Exchangeable(const ClusterProfile& cluster, int a, int b) {
  if (!SameProfile(cluster.workers[static_cast<size_t>(a)],
                   cluster.workers[static_cast<size_t>(b)]) ||
      !SameLink(cluster.links.At(a, b), cluster.links.At(b, a))) {
    return false;
  }
  for (int other = 0; other < cluster.links.size(); ++other) {
    if (other != a && other != b &&
        (!SameLink(cluster.links.At(a, other), cluster.links.At(b, other)) ||
         !SameLink(cluster.links.At(other, a), cluster.links.At(other, b)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

WorkerClasses ExactClasses(const ClusterProfile& cluster) {
  WorkerClasses classes;
  for (int rank = 0; rank < static_cast<int>(cluster.workers.size()); ++rank) {
    size_t found = 0;
    while (found < classes.members.size() &&
           !Exchangeable(cluster, classes.members[found].front(), rank)) {
      ++found;
    }
    if (found == classes.members.size()) {
      classes.members.emplace_back();
    }
    classes.members[found].push_back(rank);
    classes.class_of.push_back(static_cast<int>(found));
  }
  return classes;
}

WorkerClasses CoarseClasses(const ClusterProfile& cluster,
                            const std::vector<WorkerCosts>& costs,
                            int limit) {
  // Speeds and memories are rounded on a logarithmic scale, coarser and coarser until few enough
  // remain.
  for (double width = 0.02;; width *= 1.5) {
    std::map<std::pair<int64_t, int64_t>, std::vector<int>> groups;
    for (size_t rank = 0; rank < cluster.workers.size(); ++rank) {
      const WorkerCosts& cost = costs[rank];
      const double seconds = cost.forward.back() + cost.backward.back();
      const int64_t speed = std::llround(std::log(std::max(seconds, 1e-300)) / width);
      const int64_t memory =
          cost.memory_bytes == 0
              ? -1
              : std::llround(std::log(static_cast<double>(cost.memory_bytes)) / (2 * width));
      groups[{speed, memory}].push_back(static_cast<int>(rank));
    }
    if (static_cast<int>(groups.size()) > limit && width < 1e6) {
      continue;
    }
    WorkerClasses classes;
    classes.class_of.resize(cluster.workers.size());
    for (auto& group : groups) {
      for (const int rank : group.second) {
        classes.class_of[static_cast<size_t>(rank)] = static_cast<int>(classes.members.size());
      }
      classes.members.push_back(std::move(group.second));
    }
    return classes;
  }
}

int64_t EstimateStageBytes(const SegmentTable& table,
                           int first,
                           int last,
                           int in_flight,
                           int microbatches,
                           bool recompute) {
  int64_t state = 0;
  int64_t gradients = 0;
  int64_t stash = 0;
  int64_t largest_stash = 0;
  int64_t working = 0;
  std::set<graph::ParameterId> held;
  for (int s = first; s < last; ++s) {
    const size_t segment = static_cast<size_t>(s);
    for (const graph::ParameterId id : table.parameters[segment]) {
      if (held.insert(id).second) {
        state += table.state_bytes[static_cast<size_t>(id)];
        gradients += table.parameter_bytes[static_cast<size_t>(id)];
      }
    }
    stash += table.stash_bytes[segment];
    largest_stash = std::max(largest_stash, table.stash_bytes[segment]);
    working = std::max(working, table.working_bytes[segment]);
  }
  // Gradients are summed as in a binary counter: about one partial sum for each bit of the number
  // of microbatches.
  const int sums = 1 + static_cast<int>(std::log2(std::max(1, microbatches)));
  const int64_t input = table.forward_bytes[static_cast<size_t>(first)];
  const int64_t held_values =
      recompute ? static_cast<int64_t>(in_flight) * input * (last - first) + largest_stash
                : static_cast<int64_t>(in_flight) * (stash + input);
  return state + gradients * sums + held_values + working;
}

}  // namespace heddle::planner
