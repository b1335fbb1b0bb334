#include "planner/search/improve.h"

#include <algorithm>

namespace heddle::planner {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

constexpr double kWorthwhile = 1e-6;
constexpr size_t kMaxPipelines = 16;  // More have too many pairs to try.

void Renumber(Plan& plan) {
  int first = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    pipeline.first_microbatch = first;
    first += pipeline.microbatches;
  }
}

bool StageFits(const Problem& problem, const Plan& plan, const Pipeline& pipeline, size_t j) {
  return problem.Fits(pipeline.stages[j].worker(), ShapeOf(plan, pipeline, j));
}

/// Switches recomputation on if the stage does not fit without. False: it does not fit at all.
bool SettleRecompute(const Problem& problem, const Plan& plan, Pipeline& pipeline, size_t j) {
  for (const bool recompute : {false, true}) {
    pipeline.stages[j].recompute = recompute;
    if (StageFits(problem, plan, pipeline, j)) {
      return true;
    }
  }
  return false;
}

bool PipelineFits(const Problem& problem, const Plan& plan, const Pipeline& pipeline) {
  for (size_t j = 0; j < pipeline.stages.size(); ++j) {
    if (!StageFits(problem, plan, pipeline, j)) {
      return false;
    }
  }
  return true;
}

/// Seconds of the pipeline with one more microbatch, by its slowest stage.
double NextSeconds(const Problem& problem, const Pipeline& pipeline) {
  Pace pace;
  for (const Stage& stage : pipeline.stages) {
    const double seconds = problem.costs[static_cast<size_t>(stage.worker())]->Stage(
        stage.first_segment, stage.last_segment, stage.recompute);
    pace.period = std::max(pace.period, seconds);
    pace.fill += seconds;
  }
  return pace.Seconds(pipeline.microbatches + 1);
}

/// Gives one microbatch to the pipeline that would finish it first. False: no pipeline has the
/// memory.
bool GiveOne(const Problem& problem, Plan& plan) {
  Pipeline* best = nullptr;
  double least = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    ++pipeline.microbatches;
    const bool fits = PipelineFits(problem, plan, pipeline);
    --pipeline.microbatches;
    const double seconds = NextSeconds(problem, pipeline);
    if (fits && (best == nullptr || seconds < least)) {
      best = &pipeline;
      least = seconds;
    }
  }
  if (best != nullptr) {
    ++best->microbatches;
  }
  return best != nullptr;
}

/// The most that a stage may compute ahead: no more than the stage before it. With one more, which
/// ValidatePlan allows, its next forward would wait until the stage before it has done the backward
/// that it has just sent, so that the two would take turns.
int Limit(const Pipeline& pipeline, size_t stage, int most) {
  if (stage + 1 == pipeline.stages.size()) {
    return 0;
  }
  return stage == 0 ? most : std::min(most, pipeline.stages[stage - 1].ahead);
}

/// Repairs shares as RepairShares does, as if every pipeline began with microbatch `first`.
std::optional<Plan> RepairSharesFrom(const Problem& problem, Plan plan, int first) {
  int left = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    pipeline.first_microbatch = first;
    while (pipeline.microbatches > 0 && !PipelineFits(problem, plan, pipeline)) {
      --pipeline.microbatches;
      ++left;
    }
  }
  for (; left > 0; --left) {
    if (!GiveOne(problem, plan)) {
      return std::nullopt;
    }
  }
  std::erase_if(plan.pipelines,
                [](const Pipeline& pipeline) { return pipeline.microbatches == 0; });
  Renumber(plan);
  return plan;
}

/// Passes moves to `accept` one after another until it returns true.
class Moves {
 public:
  using Accept = std::function<bool(const Plan&)>;

  Moves(const Problem& problem, const Plan& plan, const Accept& accept)
      : problem_(problem),
        plan_(plan),
        accept_(accept),
        by_rank_(InputByRank(problem, static_cast<int>(plan.pipelines.size()), rank_costs_)) {}

  bool Try() { return TryCuts() || TryShares() || TryWorkers() || TryRanges(); }

 private:
  bool TryCuts() {
    for (size_t p = 0; p < plan_.pipelines.size(); ++p) {
      for (size_t j = 0; j + 1 < plan_.pipelines[p].stages.size(); ++j) {
        for (const int shift : {-1, 1}) {
          Plan moved = plan_;
          Stage& left = moved.pipelines[p].stages[j];
          Stage& right = moved.pipelines[p].stages[j + 1];
          left.last_segment += shift;
          right.first_segment += shift;
          if (left.first_segment < left.last_segment && right.first_segment < right.last_segment &&
              SettleRecompute(problem_, moved, moved.pipelines[p], j) &&
              SettleRecompute(problem_, moved, moved.pipelines[p], j + 1) && accept_(moved)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  bool TryShares() {
    for (size_t from = 0; from < plan_.pipelines.size(); ++from) {
      for (size_t to = 0; to < plan_.pipelines.size(); ++to) {
        for (const int count : {1, 2, 4}) {
          if (from == to || plan_.pipelines[from].microbatches < count) {
            continue;
          }
          Plan moved = plan_;
          moved.pipelines[from].microbatches -= count;
          moved.pipelines[to].microbatches += count;
          std::erase_if(moved.pipelines,
                        [](const Pipeline& pipeline) { return pipeline.microbatches == 0; });
          Renumber(moved);
          if (FitsMemory(problem_, moved) && accept_(moved)) {
            return true;
          }
        }
      }
    }
    return false;
  }

  /// Exchanges the workers of any two stages, or of a stage and an idle worker.
  bool TryWorkers() {
    std::vector<std::pair<size_t, size_t>> places;
    for (size_t p = 0; p < plan_.pipelines.size(); ++p) {
      for (size_t j = 0; j < plan_.pipelines[p].stages.size(); ++j) {
        places.emplace_back(p, j);
      }
    }
    const std::vector<int> idle = plan_.IdleWorkers();
    for (size_t a = 0; a < places.size(); ++a) {
      for (size_t b = a + 1; b < places.size() + idle.size(); ++b) {
        Plan moved = plan_;
        Pipeline& first = moved.pipelines[places[a].first];
        program::Group& group = first.stages[places[a].second].group;
        bool fits = true;
        if (b < places.size()) {
          Pipeline& second = moved.pipelines[places[b].first];
          std::swap(group, second.stages[places[b].second].group);
          fits = SettleRecompute(problem_, moved, second, places[b].second);
        } else {
          group = {idle[b - places.size()]};
        }
        fits = SettleRecompute(problem_, moved, first, places[a].second) && fits;
        if (fits && accept_(moved)) {
          return true;
        }
        fits = RecutPipeline(moved, places[a].first);
        if (b < places.size() && places[b].first != places[a].first) {
          fits = RecutPipeline(moved, places[b].first) && fits;
        }
        if (fits && accept_(moved)) {
          return true;
        }
      }
    }
    return false;
  }

  /// New cuts for the pipeline's workers in their order. False: they cannot hold the model.
  bool RecutPipeline(Plan& plan, size_t p) const {
    Pipeline& pipeline = plan.pipelines[p];
    std::vector<int> order;
    for (const Stage& stage : pipeline.stages) {
      order.push_back(stage.worker());
    }
    std::vector<Stage> stages = Recut(by_rank_, order);
    if (stages.empty()) {
      return false;
    }
    pipeline.stages = std::move(stages);
    return FitsMemory(problem_, plan);
  }

  bool TryRanges() {
    for (size_t p = 0; p + 1 < plan_.pipelines.size(); ++p) {
      if (plan_.pipelines[p].microbatches != plan_.pipelines[p + 1].microbatches) {
        Plan moved = plan_;
        std::swap(moved.pipelines[p], moved.pipelines[p + 1]);
        Renumber(moved);
        if (FitsMemory(problem_, moved) && accept_(moved)) {
          return true;
        }
      }
    }
    return false;
  }

  const Problem& problem_;
  const Plan& plan_;
  const Accept& accept_;
  std::vector<WorkerCosts> rank_costs_;
  const PipelineInput by_rank_;
};

}  // namespace

ScoredPlan Improve(const Problem& problem,
                   ScoredPlan start,
                   const std::function<double(const Plan&)>& evaluate,
                   int& budget) {
  if (start.plan.pipelines.size() > kMaxPipelines) {
    return start;
  }
  ScoredPlan best = std::move(start);
  bool better = true;
  while (better && budget > 0) {
    ScoredPlan found = best;
    const Moves::Accept accept = [&](const Plan& moved) {
      if (budget <= 0) {
        return true;
      }
      --budget;
      const double seconds = evaluate(moved);
      if (seconds < best.seconds * (1 - kWorthwhile)) {
        found = {moved, seconds};
        return true;
      }
      return false;
    };
    Moves(problem, best.plan, accept).Try();
    better = found.seconds < best.seconds;
    best = std::move(found);
  }
  return best;
}

std::optional<Plan> RepairShares(const Problem& problem, const Plan& plan) {
  if (FitsMemory(problem, plan)) {
    return plan;
  }
  // The begins of the pipelines' ranges, which cost memory, are known at the end only: assumes
  // first the least memory for them, then the most.
  for (const int first : {0, program::kWorstFirstMicrobatch}) {
    std::optional<Plan> repaired = RepairSharesFrom(problem, plan, first);
    if (repaired.has_value() && FitsMemory(problem, *repaired)) {
      return repaired;
    }
  }
  return std::nullopt;
}

bool SettleMemory(const Problem& problem, Plan& plan) {
  for (Pipeline& pipeline : plan.pipelines) {
    for (size_t j = 0; j < pipeline.stages.size(); ++j) {
      if (!SettleRecompute(problem, plan, pipeline, j)) {
        return false;
      }
    }
  }
  return true;
}

bool FitsMemory(const Problem& problem, const Plan& plan) {
  return std::all_of(plan.pipelines.begin(), plan.pipelines.end(), [&](const Pipeline& pipeline) {
    return PipelineFits(problem, plan, pipeline);
  });
}

void GiveSlack(const Problem& problem, int most, Plan& plan) {
  for (Pipeline& pipeline : plan.pipelines) {
    for (size_t j = 0; j < pipeline.stages.size(); ++j) {
      Stage& stage = pipeline.stages[j];
      stage.ahead = Limit(pipeline, j, most);
      while (stage.ahead > 0 && !problem.Fits(stage.worker(), ShapeOf(plan, pipeline, j))) {
        --stage.ahead;
      }
    }
  }
}

}  // namespace heddle::planner
