#include "planner/teams/team_profile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "base/check.h"
#include "engine/graph/sharding/complete.h"
#include "engine/graph/sharding/localise.h"
#include "planner/predictor/exchange_cost.h"

namespace heddle::planner {
namespace {

using graph::LocalGraph;
using graph::Node;

/// A segment's forward or backward.
using Part = std::pair<int, bool>;

Part PartOf(const Node& node) {
  return {node.segment, node.phase == graph::Phase::kForward};
}

/// Seconds of nodes by their signature, each priced once.
class Prices {
 public:
  explicit Prices(const program::WorkerProfile& profile) : profile_(profile) {}

  double Seconds(const graph::Graph& graph, const Node& node) {
    const auto found = prices_.emplace(graph::NodeSignature(graph, node), 0.0);
    if (found.second) {
      found.first->second = profile_.Seconds(graph, node) + profile_.instruction_seconds;
    }
    return found.first->second;
  }

 private:
  const program::WorkerProfile& profile_;
  std::map<std::string, double> prices_;
};

/// Seconds of each part of the graph for one member, with its exchanges.
std::map<Part, double> SecondsOf(const LocalGraph& local,
                                 const program::WorkerProfile& profile,
                                 const comm::LinkTable& links,
                                 const std::vector<int>& ranks) {
  std::map<Part, double> seconds;
  Prices prices(profile);
  Part part{0, true};
  for (const graph::Step& step : local.order) {
    if (step.node >= 0) {
      const Node& node = local.graph.node(step.node);
      part = PartOf(node);
      seconds[part] += prices.Seconds(local.graph, node);
      continue;
    }
    const graph::Exchange& exchange = local.exchanges[static_cast<size_t>(step.exchange)];
    const int64_t sent = local.graph.tensor(exchange.from).type.bytes();
    const int64_t received = local.graph.tensor(exchange.to).type.bytes();
    const Part reader = exchange.reader < 0 ? part : PartOf(local.graph.node(exchange.reader));
    seconds[reader] +=
        Communicates(exchange.form)
            ? profile.instruction_seconds + ExchangeSeconds(links, ranks, exchange, sent, received)
            : profile.ByteSeconds("copy", received);
  }
  return seconds;
}

/// Elements of parameters that a member holds.
double HeldElements(const graph::Graph& graph, const LocalGraph& local) {
  double elements = 0;
  for (const graph::Parameter& parameter : graph.parameters) {
    const auto& box = local.boxes[static_cast<size_t>(parameter.compute)];
    elements += box.has_value() ? static_cast<double>(ElementCount(box->extent)) : 0;
  }
  return elements;
}

/// Seconds by signature so that each part of the graph takes `wanted`.
std::map<std::string, double> Distribute(const graph::Graph& graph,
                                         const program::WorkerProfile& reference,
                                         const std::map<Part, double>& wanted) {
  Prices prices(reference);
  std::map<Part, double> whole;
  for (const Node& node : graph.nodes) {
    whole[PartOf(node)] += prices.Seconds(graph, node);
  }
  std::map<std::string, std::pair<double, int>> sums;
  for (const Node& node : graph.nodes) {
    const Part part = PartOf(node);
    const auto found = wanted.find(part);
    const double factor =
        found == wanted.end() ? 0 : found->second / std::max(whole.at(part), 1e-300);
    auto& [sum, count] = sums[graph::NodeSignature(graph, node)];
    sum += factor * prices.Seconds(graph, node);
    ++count;
  }
  std::map<std::string, double> seconds;
  for (const auto& [signature, sum] : sums) {
    seconds[signature] = std::max(0.0, sum.first / sum.second - reference.instruction_seconds);
  }
  return seconds;
}

}  // namespace

std::string TeamName(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "+"));
}

program::WorkerProfile TeamProfile(const graph::Graph& graph,
                                   const ClusterProfile& cluster,
                                   const Team& team,
                                   const graph::Layout& layout) {
  const auto sharded = graph::Complete(graph, layout);
  HEDDLE_CHECK(sharded.ok(), "{}", sharded.status().ToString());
  double elements = 0;
  for (const graph::Parameter& parameter : graph.parameters) {
    elements += static_cast<double>(ElementCount(parameter.shape));
  }
  program::WorkerProfile fused = cluster.workers[static_cast<size_t>(team.ranks[0])];
  const program::WorkerProfile reference = fused;
  std::map<Part, double> wanted;
  std::map<std::string, double> rates;
  std::vector<std::string> names;
  double memory = std::numeric_limits<double>::infinity();
  for (size_t position = 0; position < team.ranks.size(); ++position) {
    const program::WorkerProfile& member =
        cluster.workers[static_cast<size_t>(team.ranks[position])];
    names.push_back(member.worker);
    const LocalGraph local = graph::Localise(*sharded, static_cast<int>(position));
    for (const auto& [part, seconds] : SecondsOf(local, member, cluster.links, team.ranks)) {
      wanted[part] = std::max(wanted[part], seconds);
    }
    const double held = HeldElements(graph, local) / elements;
    for (const char* const what : {"fold", "update"}) {
      rates[what] = std::max(rates[what], held * member.ByteSeconds(what, 1));
    }
    rates["copy"] = std::max(rates["copy"], member.ByteSeconds("copy", 1));
    if (member.memory_bytes > 0 && held > 0) {
      memory = std::min(memory, static_cast<double>(member.memory_bytes) / held);
    }
  }
  fused.worker = TeamName(names);
  fused.seconds = Distribute(graph, reference, wanted);
  fused.seconds.insert(rates.begin(), rates.end());
  fused.memory_bytes = memory < 1e18 ? static_cast<int64_t>(memory) : 0;
  return fused;
}

}  // namespace heddle::planner
