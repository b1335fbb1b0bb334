#include "planner/search/fleet.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "planner/linear/linear_program.h"
#include "planner/search/divisions.h"

namespace heddle::planner {
namespace {

constexpr int kMaxClasses = 4;
constexpr int kMaxFleetDepth = 8;
constexpr int kMaxDealtWorkers = 64;  ///< For more workers classes are fine enough.
constexpr int kMaxDealtPipelines = 16;

int Depth(const Composition& composition) {
  return std::accumulate(composition.begin(), composition.end(), 0);
}

/// Microbatches that a pipeline completes within `bound`.
double Completed(const std::vector<Pace>& paces, double bound) {
  double most = 0;
  for (const Pace& pace : paces) {
    if (pace.fill <= bound) {
      most = std::max(most, std::floor((bound - pace.fill) / pace.period + 1e-9) + 1);
    }
  }
  return most;
}

/// The linear program for pipelines of one least depth.
class Packing {
 public:
  Packing(const PipelineTable& table, const std::vector<int>& counts, int microbatches, int least)
      : table_(table),
        counts_(counts),
        microbatches_(microbatches) {
    for (size_t i = 0; i < table.compositions().size(); ++i) {
      if (Depth(table.compositions()[i]) >= least) {
        usable_.push_back(i);
      }
    }
  }

  /// The division for the smallest T; no pipelines when nothing is deep enough.
  Division Solve() const {
    if (usable_.empty()) {
      return {};
    }
    double high = table_.Paces(usable_.front()).front().Seconds(microbatches_);
    for (const size_t index : usable_) {
      high = std::min(high, table_.Paces(index).front().Seconds(microbatches_));
    }
    double low = 0;
    for (int i = 0; i < 40 && high - low > 1e-6 * high; ++i) {
      const double middle = low + (high - low) / 2;
      double total = 0;
      Pack(middle, &total);
      (total >= microbatches_ ? high : low) = middle;
    }
    double total = 0;
    return {.pipelines = Pack(high, &total), .seconds = high};
  }

 private:
  std::vector<size_t> Pack(double bound, double* total) const {
    std::vector<double> value;
    std::vector<std::vector<double>> matrix(counts_.size());
    for (const size_t index : usable_) {
      value.push_back(Completed(table_.Paces(index), bound));
      for (size_t c = 0; c < counts_.size(); ++c) {
        matrix[c].push_back(table_.compositions()[index][c]);
      }
    }
    const std::vector<double> limit(counts_.begin(), counts_.end());
    const std::vector<double> solution = SolvePacking(value, matrix, limit);
    std::vector<int> left = counts_;
    std::vector<size_t> chosen;
    *total = 0;
    const auto take = [&](size_t j, int count) {
      for (size_t c = 0; c < left.size(); ++c) {
        left[c] -= count * table_.compositions()[usable_[j]][c];
      }
      chosen.insert(chosen.end(), static_cast<size_t>(count), usable_[j]);
      *total += count * value[j];
    };
    for (size_t j = 0; j < usable_.size(); ++j) {
      take(j, static_cast<int>(std::floor(solution[j] + 1e-7)));
    }
    for (;;) {
      // Packs the workers left: most microbatches first; ties go to the shallower composition.
      size_t best = usable_.size();
      for (size_t j = 0; j < usable_.size(); ++j) {
        const Composition& composition = table_.compositions()[usable_[j]];
        bool fits = value[j] > 0;
        for (size_t c = 0; c < left.size(); ++c) {
          fits = fits && composition[c] <= left[c];
        }
        if (fits && (best == usable_.size() || value[j] > value[best])) {
          best = j;
        }
      }
      if (best == usable_.size()) {
        break;
      }
      take(best, 1);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

  const PipelineTable& table_;
  const std::vector<int>& counts_;
  const int microbatches_;
  std::vector<size_t> usable_;
};

/// Cuts each pipeline again for its own workers, whose speeds differ a little from their class's.
/// False: a pipeline lacks the memory, and its cuts stay.
bool RecutAll(const Problem& problem, Draft& draft) {
  bool fits = true;
  PipelineInput input;
  std::vector<WorkerCosts> costs;
  for (auto& alternatives : draft.pipelines) {
    const std::vector<program::Stage> stages = alternatives.front().stages;
    costs.clear();
    std::vector<int> order;
    for (const program::Stage& stage : stages) {
      order.push_back(static_cast<int>(order.size()));
      costs.push_back(*problem.costs[static_cast<size_t>(stage.worker())]);
    }
    input.table = &problem.table;
    input.costs = &costs;
    input.microbatches =
        std::max(1, problem.microbatches / static_cast<int>(draft.pipelines.size()));
    input.link = [&](int from, int to) {
      return problem.cluster.links.At(stages[static_cast<size_t>(from)].worker(),
                                      stages[static_cast<size_t>(to)].worker());
    };
    input.fits = [&](int position, int first, int last, int depth, bool recompute) {
      return problem.Fits(stages[static_cast<size_t>(position)].worker(),
                          {first, last, depth - 1, input.microbatches, recompute,
                           static_cast<int>(draft.pipelines.size())});
    };
    const std::vector<ClassStage> cuts = BestCuts(input, order);
    if (cuts.empty()) {
      fits = false;
      continue;
    }
    Draft::Alternative alternative;
    for (size_t j = 0; j < cuts.size(); ++j) {
      const double seconds =
          costs[j].Stage(cuts[j].first_segment, cuts[j].last_segment, cuts[j].recompute);
      alternative.pace.period = std::max(alternative.pace.period, seconds);
      alternative.pace.fill += seconds;
      alternative.stages.push_back({.group = {stages[j].worker()},
                                    .first_segment = cuts[j].first_segment,
                                    .last_segment = cuts[j].last_segment,
                                    .recompute = cuts[j].recompute});
    }
    alternatives = {std::move(alternative)};
  }
  return fits;
}

/// Deals the workers, fastest first, back and forth to `pipelines` pipelines, so that these have
/// about equal speeds, and cuts them for their workers. Nullopt if a pipeline lacks the memory.
std::optional<program::Plan> DealtPlan(const Problem& problem,
                                       const std::vector<int>& fastest_first,
                                       int pipelines) {
  Draft draft;
  draft.pipelines.assign(static_cast<size_t>(pipelines), {Draft::Alternative{}});
  const size_t period = 2 * static_cast<size_t>(pipelines);
  for (size_t i = 0; i < fastest_first.size(); ++i) {
    const size_t turn = i % period;
    auto& stages = draft.pipelines[std::min(turn, period - 1 - turn)].front().stages;
    if (static_cast<int>(stages.size()) < problem.table.segments) {
      stages.push_back({.group = {fastest_first[i]}});
    }
  }
  if (!RecutAll(problem, draft)) {
    return std::nullopt;
  }
  return PlanOf(problem, draft);
}

std::vector<int> FastestFirst(const Problem& problem) {
  std::vector<int> ranks(static_cast<size_t>(problem.workers()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto seconds = [&](int rank) {
    return problem.costs[static_cast<size_t>(rank)]->Stage(0, problem.table.segments, false);
  };
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return seconds(a) < seconds(b); });
  return ranks;
}

}  // namespace

std::vector<program::Plan> FleetPlans(const Problem& problem, const WorkerClasses& exact) {
  WorkerClasses classes = exact;
  if (static_cast<int>(classes.members.size()) > kMaxClasses) {
    std::vector<WorkerCosts> costs;
    for (const WorkerCosts* cost : problem.costs) {
      costs.push_back(*cost);
    }
    classes = CoarseClasses(problem.cluster, costs, kMaxClasses);
  }
  std::vector<WorkerCosts> class_costs;
  PipelineInput input =
      InputOf(problem, classes, std::max(1, std::min(problem.workers(), problem.microbatches) / 2),
              class_costs);
  if (problem.limits.max_depth == 0) {
    input.max_depth = std::min(problem.workers(), kMaxFleetDepth);
  }
  PipelineTable table = PipelineTable::Build(input);
  if (table.compositions().empty() && input.max_depth < problem.table.segments) {
    // Too little memory for shallow pipelines.
    input.max_depth = std::min(problem.table.segments, problem.workers());
    table = PipelineTable::Build(input);
  }
  std::vector<program::Plan> plans;
  for (int least = 1; least <= input.max_depth; least *= 2) {
    const Division division = Packing(table, input.counts, problem.microbatches, least).Solve();
    if (division.pipelines.empty()) {
      continue;
    }
    Draft draft = DraftOf(classes, table, division);
    RecutAll(problem, draft);
    plans.push_back(PlanOf(problem, draft));
  }
  if (problem.workers() > kMaxDealtWorkers) {
    return plans;
  }
  const std::vector<int> fastest_first = FastestFirst(problem);
  const int most = std::min({problem.workers(), problem.microbatches, kMaxDealtPipelines});
  for (int pipelines = 1; pipelines <= most; ++pipelines) {
    if (std::optional<program::Plan> plan = DealtPlan(problem, fastest_first, pipelines)) {
      plans.push_back(std::move(*plan));
    }
  }
  return plans;
}

}  // namespace heddle::planner
