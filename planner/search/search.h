/// \file
/// Finds the plan: which workers form which pipelines, in which order, where the model is cut, what
/// is recomputed or computed ahead, how many microbatches each pipeline computes, and who is left
/// out.
///
/// Method. Workers that are exchangeable form classes. A table of Pareto-optimal pipelines for
/// every composition (pipelines.h) is exact under memory limits. Few workers: every division of the
/// workers into pipelines is examined, with exact integer shares (shares.h). Many: classes of about
/// equal workers, a linear program over compositions (fleet.h). The best candidates are priced by
/// stage (estimate.h), improved by local moves, and the best of those lowered and simulated
/// (simulator.h), beside the uniform grids and the plan in force: the search never loses to them.
///
/// Everything here is a pure function: equal input gives an equal plan on every machine, and
/// budgets count evaluations, not time.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/program/plan.h"
#include "planner/predictor/cluster.h"
#include "planner/predictor/simulator.h"

namespace heddle::planner {

struct SearchLimits {
  int max_depth = 0;  ///< Stages of a pipeline; 0: as many as are useful.
  int max_divisions =
      60000;  ///< Divisions into pipelines examined one by one before classes are used.
  int simulated_candidates = 6;              ///< Lowered and simulated, of the best estimates.
  int estimates = 3000;                      ///< Evaluations by stage that local moves may use.
  int64_t simulated_instructions = 1500000;  ///< That local moves may lower and simulate in all.

  /// For a job that stands still until the plan is known and has a `previous` one: a tenth of the
  /// time, for plans that are a few percent slower, seldom more than a tenth.
  static SearchLimits Hurried();
};

struct PlanRequest {
  const graph::Graph* graph = nullptr;  ///< Required; differentiated.
  ClusterProfile cluster = {};          ///< In any order; may hold more workers than `workers`.
  std::vector<std::string> workers =
      {};                ///< Members by rank; empty: all of `cluster`, in its order.
  int microbatches = 0;  ///< Of the global batch.
  program::Determinism determinism = program::Determinism::kExact;
  int64_t generation = 0;
  /// Warm start: what is left of it is among the candidates.
  std::optional<program::Plan> previous = {};
  /// With `previous`: the seconds that moving the state takes count 1 / horizon_steps to each step.
  /// 0: do not count.
  int64_t horizon_steps = 0;
  /// Plans whose steps take at most this part longer than the fastest are as fast as it, for all
  /// that the profiles say: the one with the fewest messages is taken, then `previous`, then the
  /// first in a fixed order.
  double tie = 0;
  SearchLimits limits = {};
  /// Once it is requested, nobody wants the plan any more: the search soon ends without one.
  std::stop_token stop = {};
};

/// A plan that lost.
struct Alternative {
  program::Plan plan;
  double step_seconds = 0;
  std::string why;  ///< One clause.
};

struct SearchOutcome {
  program::Plan plan;
  /// Of the plan. For clusters too large to lower, only step_seconds and peak_bytes are filled,
  /// from the estimate by stage.
  Simulation simulation;
  bool simulated = false;
  /// Step seconds if the speeds of all workers, each with the whole model to itself, simply added
  /// up.
  double bound_seconds = 0;
  std::vector<Alternative> alternatives;  ///< Best of other kinds, at most 4, fastest first.
};

/// Thread:  pure.
/// Errors:  kInvalidArgument  the request is malformed, or no combination of workers has the memory
/// for
///                            the model (the message says what is needed and what there is);
///          kCancelled        `stop` was requested
Result<SearchOutcome> Search(const PlanRequest& request);

/// The plan of Search, with its predictions filled in.
Result<program::Plan> FindPlan(const PlanRequest& request);

/// The best grid of equal pipelines × stages with equal layers and shares, as a planner that takes
/// all workers for alike would choose it: all pipelines of one depth, segments and microbatches
/// divided evenly (the rest to the first), workers in rank order, chosen by predicted time; memory
/// limits hold. Errors: kInvalidArgument when no such grid fits.
Result<program::Plan> UniformGrid(const PlanRequest& request);

/// For people: the plan, its predicted time and memory by worker, the share of the bound, and why
/// others lost.
std::string Explain(const PlanRequest& request, const SearchOutcome& outcome);

}  // namespace heddle::planner
