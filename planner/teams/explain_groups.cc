#include "planner/teams/explain_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/stage_graph.h"
#include "planner/predictor/exchange_cost.h"

namespace heddle::planner {
namespace {

using program::Code;
using program::Instruction;
using program::Plan;
using program::Stage;

constexpr size_t kMostGroups = 8;

/// What a member does of one kind for a microbatch.
struct Tally {
  int count = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

/// A microbatch's forward, or backward, of one member.
struct PassOfMember {
  double compute_seconds = 0;
  std::map<graph::ExchangeForm, Tally> exchanges;
};

struct Passes {
  PassOfMember forward;
  PassOfMember backward;
};

class GroupDescriber {
 public:
  GroupDescriber(const SearchRequest& request, const Plan& plan, const ClusterProfile& cluster)
      : graph_(*request.graph),
        plan_(plan),
        cluster_(cluster) {}

  Result<std::string> Describe(const Stage& stage, int microbatch) const {
    const std::vector<int>& units =
        plan_.layouts[static_cast<size_t>(stage.layout)].cuts.front().units;
    std::string text = fmt::format("  {} to {}, shares {}\n", SegmentName(stage.first_segment),
                                   SegmentName(stage.last_segment - 1), fmt::join(units, " : "));
    std::vector<Passes> members;
    for (const int rank : stage.group) {
      HEDDLE_ASSIGN_OR_RETURN(members.emplace_back(), PassesOf(rank, microbatch));
    }
    text += DescribePass("forward", stage, members, &Passes::forward);
    text += DescribePass("backward", stage, members, &Passes::backward);
    return text;
  }

 private:
  const std::string& SegmentName(int segment) const {
    return graph_.segments[static_cast<size_t>(segment)].name;
  }

  Result<Passes> PassesOf(int rank, int microbatch) const {
    HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, program::MemberGraph(graph_, plan_, rank));
    HEDDLE_ASSIGN_OR_RETURN(const program::Program program, program::Lower(graph_, plan_, rank));
    const program::WorkerProfile& profile = cluster_.workers[static_cast<size_t>(rank)];
    Passes passes;
    bool forward = true;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.microbatch != microbatch) {
        continue;
      }
      if (instruction.code == Code::kRun) {
        const graph::Node& node = graph.node(instruction.node);
        forward = forward && node.phase == graph::Phase::kForward;
        PassOfMember& pass = forward ? passes.forward : passes.backward;
        pass.compute_seconds += profile.Seconds(graph, node) + profile.instruction_seconds;
      } else if (instruction.code == Code::kExchange) {
        PassOfMember& pass = forward ? passes.forward : passes.backward;
        AddExchange(program, graph, instruction, pass);
      }
    }
    return passes;
  }

  void AddExchange(const program::Program& program,
                   const graph::Graph& graph,
                   const Instruction& instruction,
                   PassOfMember& pass) const {
    const graph::Exchange& exchange = program.exchanges[static_cast<size_t>(instruction.exchange)];
    if (!Communicates(exchange.form)) {
      return;
    }
    const int64_t sent = graph.tensor(exchange.from).type.bytes();
    const int64_t received = graph.tensor(exchange.to).type.bytes();
    Tally& tally = pass.exchanges[exchange.form];
    ++tally.count;
    tally.bytes += std::max(sent, received);
    tally.seconds += ExchangeSeconds(cluster_.links, instruction.group, exchange, sent, received);
  }

  std::string DescribePass(std::string_view name,
                           const Stage& stage,
                           const std::vector<Passes>& members,
                           PassOfMember Passes::*pass) const {
    std::vector<std::string> compute;
    for (size_t q = 0; q < members.size(); ++q) {
      compute.push_back(fmt::format("{} {:.3g} ms",
                                    plan_.workers[static_cast<size_t>(stage.group[q])],
                                    1e3 * (members[q].*pass).compute_seconds));
    }
    std::string text = fmt::format("    {}: {}", name, fmt::join(compute, ", "));
    for (const auto& [form, tally] : (members.front().*pass).exchanges) {
      text += fmt::format("; {} {}{} of {} in all, {:.3g} ms", tally.count, graph::FormName(form),
                          tally.count == 1 ? "" : "s", FormatByteSize(ByteSize{tally.bytes}),
                          1e3 * tally.seconds);
    }
    return text + '\n';
  }

  const graph::Graph& graph_;
  const Plan& plan_;
  const ClusterProfile& cluster_;
};

}  // namespace

Result<std::string> ExplainGroups(const SearchRequest& request, const Plan& plan) {
  HEDDLE_ASSIGN_OR_RETURN(const ClusterProfile cluster,
                          SelectWorkers(request.cluster, plan.workers));
  const GroupDescriber describer(request, plan, cluster);
  std::set<std::tuple<int, int, int, bool>> described;
  std::string text;
  for (const program::Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (stage.layout < 0 || described.size() == kMostGroups ||
          !described.emplace(stage.layout, stage.first_segment, stage.last_segment, stage.recompute)
               .second) {
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const std::string inside,
                              describer.Describe(stage, pipeline.first_microbatch));
      text += inside;
    }
  }
  return text.empty() ? text : "a microbatch in groups:\n" + text;
}

}  // namespace heddle::planner
