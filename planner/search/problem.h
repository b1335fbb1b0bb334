/// \file
/// A planning request made ready for the search: validated, with cost tables, worker classes and an
/// exact answer to "does this stage fit this worker's memory".
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "engine/program/lowering/footprint.h"
#include "engine/program/plan.h"
#include "planner/predictor/costs.h"
#include "planner/predictor/estimate.h"
#include "planner/search/pipelines.h"
#include "planner/search/search.h"

namespace heddle::planner {

/// What decides a stage's memory.
struct StageShape {
  int first_segment = 0;
  int last_segment = 0;
  int later_stages = 0;
  int microbatches = 0;  ///< Of its pipeline.
  bool recompute = false;
  bool shared = false;  ///< There are other pipelines, so gradients are reduced.
  int ahead = 0;
  int first_microbatch = program::kWorstFirstMicrobatch;
  int in_flight() const { return std::min(later_stages + ahead + 1, microbatches); }
};

/// The shape of a plan's stage.
StageShape ShapeOf(const program::Plan& plan, const program::Pipeline& pipeline, size_t stage);

/// Peak bytes of stages, as a simulation of the plan finds them. Answers are kept. Thread: one
/// caller at a time.
class StageMemory {
 public:
  StageMemory(const SegmentTable& table, program::Footprint footprint)
      : table_(table),
        footprint_(std::move(footprint)) {}

  /// Clear cases are decided by an estimate.
  bool Fits(int64_t memory_bytes, const StageShape& stage);
  int64_t PeakBytes(const StageShape& stage);

 private:
  const SegmentTable& table_;
  program::Footprint footprint_;
  std::map<std::tuple<int, int, int, bool, bool, int, int>, int64_t> known_;
};

struct Problem {
  const graph::Graph* graph = nullptr;
  ClusterProfile cluster;  ///< By rank.
  int microbatches = 0;
  program::Determinism determinism = program::Determinism::kExact;
  int64_t generation = 0;
  SearchLimits limits;
  std::stop_token stop;  ///< Once it is requested, what is found is worth nothing.
  SegmentTable table;
  std::vector<std::unique_ptr<WorkerCosts>> distinct;  ///< One for each distinct profile.
  std::vector<const WorkerCosts*> costs;               ///< By rank.
  EstimateInputs estimate;
  std::unique_ptr<StageMemory> memory;

  int workers() const { return static_cast<int>(cluster.workers.size()); }
  bool Fits(int rank, const StageShape& stage) const {
    const int64_t cap = cluster.workers[static_cast<size_t>(rank)].memory_bytes;
    return cap == 0 || memory->Fits(cap, stage);
  }
};

/// Errors: kInvalidArgument (see FindPlan).
Result<std::unique_ptr<Problem>> MakeProblem(const PlanRequest& request);

/// A Plan without pipelines: names, generation, determinism, transports.
program::Plan EmptyPlan(const Problem& problem);

/// The pipelines of one candidate, on ranks, with the alternatives of running each.
struct Draft {
  struct Alternative {
    Pace pace;
    std::vector<program::Stage> stages;
  };
  std::vector<std::vector<Alternative>> pipelines;  ///< By pipeline, at least one alternative each.
};

/// The Plan with the best shares for the draft; pipelines with larger shares come first, so that
/// ranges are aligned where shares are powers of two; those without a share are left out.
program::Plan PlanOf(const Problem& problem, const Draft& draft);

/// Question about the given classes for PipelineTable and BestCuts, for pipelines of which there
/// are about `pipelines`: that decides their shares, so their memory and what reducing their
/// gradients costs a microbatch. Refers to `problem` and `classes`.
PipelineQuestion QuestionOf(const Problem& problem,
                            const WorkerClasses& classes,
                            int pipelines,
                            std::vector<WorkerCosts>& class_costs);

/// Likewise with each worker for itself: class = rank.
PipelineQuestion QuestionByRank(const Problem& problem,
                                int pipelines,
                                std::vector<WorkerCosts>& rank_costs);

/// New cuts for the workers `order`; no stages when they cannot hold the model.
std::vector<program::Stage> Recut(const PipelineQuestion& by_rank, const std::vector<int>& order);

}  // namespace heddle::planner
