/// \file
/// Prices the Programs that the runtime will run, by a discrete-event simulation of one step of all
/// workers (schedule.h has the rules). Instruction times come from the workers' profiles,
/// communication times from comm/cost, and memory from engine/program/memory.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/program/program.h"
#include "planner/predictor/cluster.h"
#include "planner/predictor/schedule.h"

namespace heddle::planner {

/// The simulated step; times are in seconds.
struct Simulation {
  double step_seconds = 0;
  std::vector<double> busy;          ///< By rank: time of computing.
  std::vector<double> waiting;       ///< By rank: time of waiting for messages and the vote.
  std::vector<double> finish;        ///< By rank: when it has finished.
  std::vector<int64_t> state_bytes;  ///< By rank: bytes of masters, moments, compute copies.
  std::vector<int64_t> peak_bytes;   ///< By rank: most bytes of state and live values.
  /// Time of gradient reductions after the last worker has reached its vote.
  double exposed_reduction_seconds = 0;
  /// Empty unless requested; `instruction` is an index in the rank's Program.
  std::vector<TimelineEntry> timeline;
};

struct SimulationOptions {
  bool timeline = false;
  /// By rank: the graph whose nodes the Program runs, where stages are groups; empty: `graph`.
  std::vector<const graph::Graph*> graphs = {};
};

/// Simulates one step of `programs`, by rank, on the workers of `cluster`, by the same ranks.
/// Contention for cores between workers of one host is not modelled; profiles are measured one
/// worker at a time. Cost: O(instructions · log workers). Thread: pure.
/// Errors: kInvalidArgument  programs and cluster differ in size, or the cluster is not usable
///         kInternal         the programs do not match each other
Result<Simulation> Simulate(const graph::Graph& graph,
                            const std::vector<program::Program>& programs,
                            const ClusterProfile& cluster,
                            const SimulationOptions& options = {});

/// Lowers `plan` and simulates it. `cluster` may list workers in any order and have others, too:
/// the plan's are found by name. Errors: those of program::LowerAll, SelectWorkers and Simulate.
Result<Simulation> ScorePlan(const graph::Graph& graph,
                             const program::Plan& plan,
                             const ClusterProfile& cluster);

}  // namespace heddle::planner
