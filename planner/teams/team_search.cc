#include "planner/teams/team_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/graph/sharding/tensor_parallel.h"
#include "planner/search/problem.h"
#include "planner/teams/team_profile.h"
#include "planner/teams/teams.h"

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

/// Searches until each member's programs fit in its memory.
constexpr int kMaxSearches = 6;
/// Part of the memory that the next search may plan with, where the last one's programs took more.
constexpr double kMargin = 0.98;

/// Each worker's speed, with the whole model.
std::vector<double> SpeedsOf(const Problem& problem) {
  std::vector<double> speeds;
  for (const WorkerCosts* const costs : problem.costs) {
    speeds.push_back(1 / std::max(costs->Stage(0, problem.table.segments, false), 1e-300));
  }
  return speeds;
}

/// The teams of `previous` whose members are all there, with the shares of their layouts.
std::vector<Team> TeamsLeft(const Problem& problem, const std::optional<Plan>& previous, int size) {
  std::vector<Team> teams;
  if (!previous.has_value()) {
    return teams;
  }
  const auto& workers = problem.cluster.workers;
  for (const Pipeline& pipeline : previous->pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (std::ssize(stage.group) != size || stage.layout < 0) {
        continue;
      }
      Team team;
      team.units = previous->layouts[static_cast<size_t>(stage.layout)].cuts[0].units;
      for (const int rank : stage.group) {
        const std::string& name = previous->workers[static_cast<size_t>(rank)];
        const auto found = std::ranges::find(workers, name, &program::WorkerProfile::worker);
        if (found != workers.end()) {
          team.ranks.push_back(static_cast<int>(found - workers.begin()));
        }
      }
      if (std::ssize(team.ranks) == size) {
        teams.push_back(std::move(team));
      }
    }
  }
  return teams;
}

/// The teams as a cluster, and back from its plans to those of the workers.
class TeamSearch {
 public:
  TeamSearch(const SearchRequest& request, const Problem& workers, std::vector<Team> teams)
      : request_(request),
        workers_(workers),
        teams_(std::move(teams)) {}

  Result<SearchOutcome> Run() {
    HEDDLE_RETURN_IF_ERROR(AddLayouts());
    SearchRequest search = request_;
    search.workers = {};
    search.cluster = Cluster();
    search.previous = AsTeams(request_.previous);
    for (int i = 0; i < kMaxSearches; ++i) {
      HEDDLE_ASSIGN_OR_RETURN(SearchOutcome found, Search(search));
      HEDDLE_ASSIGN_OR_RETURN(SearchOutcome outcome, AsWorkers(std::move(found)));
      if (Fit(outcome.plan, search.cluster)) {
        return outcome;
      }
    }
    return InvalidArgumentError(
        "no plan of teams of {} workers fits in their memory; use more workers, more in a stage, "
        "or "
        "smaller microbatches",
        teams_[0].ranks.size());
  }

 private:
  /// One layout for each distinct division of the work.
  Status AddLayouts() {
    std::map<std::vector<int>, int> known;
    for (const Team& team : teams_) {
      const auto found = known.emplace(team.units, static_cast<int>(layouts_.size()));
      if (found.second) {
        HEDDLE_ASSIGN_OR_RETURN(
            graph::Layout layout,
            graph::TensorParallel(*request_.graph, team.units, request_.divides_sequence));
        layouts_.push_back(std::move(layout));
      }
      layout_of_.push_back(found.first->second);
    }
    return Status::Ok();
  }

  ClusterProfile Cluster() const {
    ClusterProfile cluster;
    cluster.links = comm::LinkTable(static_cast<int>(teams_.size()));
    for (size_t t = 0; t < teams_.size(); ++t) {
      cluster.workers.push_back(TeamProfile(*request_.graph, workers_.cluster, teams_[t],
                                            layouts_[static_cast<size_t>(layout_of_[t])]));
      for (size_t other = 0; other < teams_.size(); ++other) {
        if (other != t) {
          cluster.links.At(static_cast<int>(t), static_cast<int>(other)) =
              WorstLink(teams_[t], teams_[other]);
        }
      }
    }
    return cluster;
  }

  comm::Link WorstLink(const Team& from, const Team& to) const {
    comm::Link worst = workers_.cluster.links.At(from.ranks[0], to.ranks[0]);
    for (const int a : from.ranks) {
      for (const int b : to.ranks) {
        const comm::Link& link = workers_.cluster.links.At(a, b);
        worst.latency_seconds = std::max(worst.latency_seconds, link.latency_seconds);
        worst.bytes_per_second = std::min(worst.bytes_per_second, link.bytes_per_second);
        worst.crowding = std::max(worst.crowding, link.crowding);
        worst.peer_bytes_per_second =
            std::min(worst.peer_bytes_per_second, link.peer_bytes_per_second);
      }
    }
    return worst;
  }

  /// A plan of the workers as one of the teams; nothing: its stages are not these teams.
  std::optional<Plan> AsTeams(const std::optional<Plan>& plan) const {
    if (!plan.has_value()) {
      return std::nullopt;
    }
    Plan teams = *plan;
    teams.workers.clear();
    teams.layouts.clear();
    teams.transports.clear();
    teams.predicted_peak_bytes.clear();
    for (const Team& team : teams_) {
      teams.workers.push_back(NameOf(team));
    }
    for (Pipeline& pipeline : teams.pipelines) {
      for (Stage& stage : pipeline.stages) {
        std::vector<std::string> names;
        for (const int rank : stage.group) {
          names.push_back(plan->workers[static_cast<size_t>(rank)]);
        }
        const auto found =
            std::ranges::find(teams.workers, TeamName(names)) - teams.workers.begin();
        if (found == std::ssize(teams.workers)) {
          return std::nullopt;
        }
        stage.group = {static_cast<int>(found)};
        stage.layout = -1;
      }
    }
    return teams;
  }

  std::string NameOf(const Team& team) const {
    std::vector<std::string> names;
    for (const int rank : team.ranks) {
      names.push_back(workers_.cluster.workers[static_cast<size_t>(rank)].worker);
    }
    return TeamName(names);
  }

  /// A plan of the teams as one of the workers.
  Plan AsWorkers(const Plan& teams) const {
    Plan plan = EmptyPlan(workers_);
    plan.pipelines = teams.pipelines;
    plan.predicted_step_seconds = teams.predicted_step_seconds;
    std::map<int, int> used;  // Layouts that a stage has, by their number among all.
    for (Pipeline& pipeline : plan.pipelines) {
      for (Stage& stage : pipeline.stages) {
        const auto team = static_cast<size_t>(stage.worker());
        const int layout = layout_of_[team];
        const auto found = used.emplace(layout, static_cast<int>(plan.layouts.size()));
        if (found.second) {
          plan.layouts.push_back(layouts_[static_cast<size_t>(layout)]);
        }
        stage.group = teams_[team].ranks;
        stage.layout = found.first->second;
      }
    }
    return plan;
  }

  Result<SearchOutcome> AsWorkers(SearchOutcome found) const {
    SearchOutcome outcome = std::move(found);
    outcome.plan = AsWorkers(outcome.plan);
    HEDDLE_ASSIGN_OR_RETURN(outcome.simulation,
                            ScorePlan(*request_.graph, outcome.plan, workers_.cluster));
    outcome.simulated = true;
    outcome.plan.predicted_step_seconds = outcome.simulation.step_seconds;
    outcome.plan.predicted_peak_bytes = outcome.simulation.peak_bytes;
    double speed = 0;
    for (const double of_worker : SpeedsOf(workers_)) {
      speed += of_worker;
    }
    outcome.bound_seconds = request_.microbatches / speed;
    for (Alternative& alternative : outcome.alternatives) {
      alternative.plan = AsWorkers(alternative.plan);
    }
    return outcome;
  }

  /// Whether each member has the memory for its program. Teams that have not may plan with less.
  bool Fit(const Plan& plan, ClusterProfile& cluster) const {
    bool fit = true;
    for (size_t t = 0; t < teams_.size(); ++t) {
      double excess = 1;
      for (const int rank : teams_[t].ranks) {
        const auto index = static_cast<size_t>(rank);
        const int64_t memory = workers_.cluster.workers[index].memory_bytes;
        if (memory > 0) {
          excess = std::max(excess, static_cast<double>(plan.predicted_peak_bytes[index]) /
                                        static_cast<double>(memory));
        }
      }
      if (excess > 1) {
        fit = false;
        int64_t& memory = cluster.workers[t].memory_bytes;
        memory = static_cast<int64_t>(kMargin * static_cast<double>(memory) / excess);
      }
    }
    return fit;
  }

  const SearchRequest& request_;
  const Problem& workers_;
  const std::vector<Team> teams_;
  std::vector<graph::Layout> layouts_;
  std::vector<int> layout_of_;  ///< By team.
};

}  // namespace

Result<SearchOutcome> SearchTeams(const SearchRequest& request, int size) {
  if (size == 1) {
    if (!request.previous.has_value() || request.previous->layouts.empty()) {
      return Search(request);
    }
    SearchRequest single = request;
    single.previous.reset();  // A plan file's groups, of which this search knows nothing.
    return Search(single);
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<Problem> workers, MakeProblem(request));
  const std::optional<graph::Heads> heads = graph::FewestHeads(*request.graph);
  if (!heads.has_value() || heads->query < size) {
    return InvalidArgumentError("{} workers cannot share a layer of {} heads", size,
                                heads.has_value() ? heads->query : 0);
  }
  if (request.determinism == program::Determinism::kExact) {
    return InvalidArgumentError("sums over a team of {} workers are relaxed, the job is exact",
                                size);
  }
  std::vector<Team> teams = MakeTeams(*heads, workers->cluster.links, SpeedsOf(*workers), size,
                                      TeamsLeft(*workers, request.previous, size));
  if (teams.empty()) {
    return InvalidArgumentError("a stage is {} workers, and there are {}", size,
                                workers->workers());
  }
  Result<SearchOutcome> found = TeamSearch(request, *workers, teams).Run();
  // Replicas of a layer that cut a parameter unlike cannot add their gradients.
  if (found.status().code() == StatusCode::kInvalidArgument &&
      std::ranges::any_of(teams, [&](const Team& team) { return team.units != teams[0].units; })) {
    MakeAlike(*heads, SpeedsOf(*workers), teams);
    found = TeamSearch(request, *workers, std::move(teams)).Run();
  }
  return found;
}

Result<SearchOutcome> SearchSizes(const SearchRequest& request, const std::vector<int>& sizes) {
  std::vector<int> order = sizes;
  if (request.previous.has_value()) {
    const auto in_force =
        static_cast<int>(request.previous->pipelines.front().stages.front().group.size());
    std::stable_partition(order.begin(), order.end(), [&](int size) { return size == in_force; });
  }
  std::optional<SearchOutcome> best;
  std::vector<Alternative> others;
  Status first;
  for (const int size : order) {
    Result<SearchOutcome> found = SearchTeams(request, size);
    if (found.status().code() == StatusCode::kCancelled) {
      return found.status();
    }
    if (!found.ok()) {
      first = first.ok() ? found.status() : first;
      continue;
    }
    if (!best) {
      best = *std::move(found);
      continue;
    }
    if (found->plan.predicted_step_seconds <
        (1 - request.tie) * best->plan.predicted_step_seconds) {
      std::swap(*best, *found);
    }
    const size_t workers = found->plan.pipelines.front().stages.front().group.size();
    others.push_back(
        {.plan = found->plan,
         .step_seconds = found->plan.predicted_step_seconds,
         .why = fmt::format("its stages have {} worker{} each", workers, workers == 1 ? "" : "s")});
  }
  if (!best) {
    return first;
  }
  best->alternatives.insert(best->alternatives.begin(), others.begin(), others.end());
  return *std::move(best);
}

}  // namespace heddle::planner
