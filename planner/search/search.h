/// \file
/// Finds a plan: which workers form which pipelines, in which order, where the model is cut, what
/// is recomputed or computed ahead, how many microbatches each pipeline computes, and which workers
/// are left out.
///
/// Method. Workers that are exchangeable form classes. A table of Pareto-optimal pipelines for
/// every composition (pipelines.h) is exact under memory limits. For few workers, every division of
/// the workers into pipelines is examined, with exact integer shares (shares.h). For many, a linear
/// program over compositions of coarser classes gives the candidates (fleet.h). The best candidates
/// are priced by stage (estimate.h) and improved by local moves; the best of those are lowered and
/// simulated (simulator.h), together with the uniform grids and the plan in force, so that the
/// search never loses to them.
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

/// The budgets of a search.
struct SearchLimits {
  int max_depth = 0;  ///< Most stages of a pipeline; 0: as many as are useful.
  /// Most divisions into pipelines that are examined one by one; more make it use coarser classes.
  int max_divisions = 60000;
  int simulated_candidates = 6;  ///< Number of the best estimates that are simulated.
  int estimates = 3000;          ///< Evaluations by stage that local moves may use.
  /// Instructions that local moves may lower and simulate in all.
  int64_t simulated_instructions = 1500000;

  /// Limits for a job that waits for the plan and has a `previous` one. The search takes a tenth of
  /// the time, for plans that are a few percent slower, rarely more than a tenth.
  static SearchLimits Hurried();
};

/// The input of a search.
struct SearchRequest {
  const graph::Graph* graph = nullptr;  ///< The differentiated graph; required.
  ClusterProfile cluster = {};          ///< Workers in any order; may have more than `workers`.
  /// The workers by rank; empty: all of `cluster`, in its order.
  std::vector<std::string> workers = {};
  int microbatches = 0;  ///< Microbatches of the global batch.
  program::Determinism determinism = program::Determinism::kExact;
  bool divides_optimizer = false;  ///< Plans do (program::Plan).
  bool divides_sequence = false;   ///< Groups do (graph::TensorParallel).
  int64_t generation = 0;
  /// The plan in force, for a warm start: plans that keep what is left of it are candidates.
  /// Precondition: it is valid for the graph (program::ValidatePlan).
  std::optional<program::Plan> previous = {};
  /// With `previous`: the steps over which the seconds of moving the state are spread; 1 /
  /// horizon_steps of them is added to each step. 0: they do not count.
  int64_t horizon_steps = 0;
  /// Plans whose steps take at most this fraction longer than the fastest count as equally fast,
  /// since profiles are not more precise. Of these the one with the fewest messages is taken, then
  /// `previous`, then the first in a fixed order.
  double tie = 0;
  SearchLimits limits = {};
  /// After a stop request the search ends soon, without a plan.
  std::stop_token stop = {};
};

/// A plan that was not chosen.
struct Alternative {
  program::Plan plan;
  double step_seconds = 0;
  std::string why;  ///< Why it is slower, as one clause.
};

/// The outcome of a search.
struct SearchOutcome {
  program::Plan plan;
  /// The simulation of the plan. For problems too large to simulate, only step_seconds, from the
  /// estimate by stage, and peak_bytes are set.
  Simulation simulation;
  bool simulated = false;
  /// The seconds of a step if the speeds of all workers, each with the whole model, simply added
  /// up.
  double bound_seconds = 0;
  std::vector<Alternative> alternatives;  ///< The best plans of other kinds, at most 4.
};

/// Searches the plan with the fastest step. Thread: pure.
/// Errors: kInvalidArgument  the request is malformed, or no combination of workers has the memory
///                           for the model; the message says what is needed and what there is
///         kCancelled        a stop was requested
Result<SearchOutcome> Search(const SearchRequest& request);

/// Returns the plan of Search, with its predictions filled in. Errors: those of Search.
Result<program::Plan> FindPlan(const SearchRequest& request);

/// Returns the best uniform grid, as a planner would choose it that takes all workers for equal:
/// all pipelines have one depth, segments and microbatches are divided evenly (the rest to the
/// first), and workers are in rank order. Of the grids that fit in memory the one with the fastest
/// predicted step is taken. Errors: kInvalidArgument (no grid fits), those of the simulation.
Result<program::Plan> UniformGrid(const SearchRequest& request);

/// Describes the outcome for people: the plan, its predicted time and memory by worker, the
/// fraction of the bound, and why other plans were not chosen.
std::string Explain(const SearchRequest& request, const SearchOutcome& outcome);

}  // namespace heddle::planner
