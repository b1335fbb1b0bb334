/// \file
/// A planning request prepared for the search: validated, with cost tables and the exact memory of
/// stages.
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

/// The properties that decide a stage's memory.
struct StageShape {
  int first_segment = 0;
  int last_segment = 0;
  int later_stages = 0;  ///< Number of stages after it in its pipeline.
  int microbatches = 0;  ///< Microbatches of its pipeline.
  bool recompute = false;
  int pipelines = 1;  ///< Of the plan; if there are others, gradients are reduced.
  int ahead = 0;      ///< As Stage::ahead.
  int first_microbatch = program::kWorstFirstMicrobatch;
  /// The most microbatches whose forward is done and whose backward is not.
  int in_flight() const { return std::min(later_stages + ahead + 1, microbatches); }
};

/// The shape of a plan's stage.
StageShape ShapeOf(const program::Plan& plan, const program::Pipeline& pipeline, size_t stage);

/// The peak bytes of stages, as a simulation of their plan finds them; of plans that divide the
/// optimizer, those of the worker that keeps the most. Results are kept. Thread:
/// one caller at a time.
class StageMemory {
 public:
  StageMemory(const SegmentTable& table, program::Footprint footprint, bool divides_optimizer)
      : table_(table),
        footprint_(std::move(footprint)),
        divides_optimizer_(divides_optimizer) {}

  /// True if the stage fits in `memory_bytes`. Clear cases are decided by EstimateStageBytes.
  bool Fits(int64_t memory_bytes, const StageShape& stage);
  /// The peak bytes of the stage.
  int64_t PeakBytes(const StageShape& stage);

 private:
  const SegmentTable& table_;
  program::Footprint footprint_;
  const bool divides_optimizer_;  ///< Estimates of the state are then too large.
  std::map<std::tuple<int, int, int, bool, int, int, int>, int64_t> known_;
};

/// The prepared request.
struct Problem {
  const graph::Graph* graph = nullptr;
  ClusterProfile cluster;  ///< By rank.
  int microbatches = 0;
  program::Determinism determinism = program::Determinism::kExact;
  bool divides_optimizer = false;
  int64_t generation = 0;
  SearchLimits limits;
  std::stop_token stop;  ///< After a stop request the result is not used.
  SegmentTable table;
  std::vector<std::unique_ptr<WorkerCosts>> distinct;  ///< One for each distinct profile.
  std::vector<const WorkerCosts*> costs;               ///< By rank.
  EstimateInputs estimate;
  std::unique_ptr<StageMemory> memory;

  int workers() const { return static_cast<int>(cluster.workers.size()); }
  /// True if the stage fits in the worker's memory.
  bool Fits(int rank, const StageShape& stage) const {
    const int64_t cap = cluster.workers[static_cast<size_t>(rank)].memory_bytes;
    return cap == 0 || memory->Fits(cap, stage);
  }
};

/// Prepares a request. Errors: kInvalidArgument (the request is malformed), those of the tables.
Result<std::unique_ptr<Problem>> MakeProblem(const SearchRequest& request);

/// The bytes of a parameter that its members send and receive to sum its gradient: the sum comes back
/// as it went, or, where the optimizer is divided, half of it goes and half of the copies come.
int64_t ReducedBytes(const Problem& problem, graph::ParameterId parameter);

/// A Plan without pipelines, which has names, generation, determinism and transports.
program::Plan EmptyPlan(const Problem& problem);

/// The pipelines of one candidate, on ranks, with alternative stages for each.
struct Draft {
  struct Alternative {
    Pace pace;
    std::vector<program::Stage> stages;
  };
  std::vector<std::vector<Alternative>> pipelines;  ///< By pipeline: at least one alternative.
};

/// Makes the Plan with the best shares for the draft. Pipelines with larger shares come first, so
/// that ranges are aligned if shares are powers of two; pipelines without a share are left out.
program::Plan PlanOf(const Problem& problem, const Draft& draft);

/// Makes the input about `classes` for PipelineTable and BestCuts. `pipelines`: the expected
/// number of pipelines, which decides their shares, and so their memory and the cost of reducing
/// gradients for each microbatch. The input refers to `problem`, `classes` and `class_costs`,
/// which is filled in.
PipelineInput InputOf(const Problem& problem,
                      const WorkerClasses& classes,
                      int pipelines,
                      std::vector<WorkerCosts>& class_costs);

/// Makes the input with a class for each worker, whose number is the rank. It refers to
/// `problem` and `rank_costs`, which is filled in.
PipelineInput InputByRank(const Problem& problem,
                          int pipelines,
                          std::vector<WorkerCosts>& rank_costs);

/// Cuts the model again for the workers `order`, given by rank; empty if they lack the memory.
std::vector<program::Stage> Recut(const PipelineInput& by_rank, const std::vector<int>& order);

}  // namespace heddle::planner
