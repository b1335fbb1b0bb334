/// \file
/// Prices the very Programs that the runtime will run: a discrete-event simulation of one step of
/// all workers (schedule.h has the rules), with instruction times from the workers' profiles,
/// communication from comm/cost, and memory from engine/program/memory.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/program/program.h"
#include "planner/predictor/cluster.h"
#include "planner/predictor/schedule.h"

namespace heddle::planner {

struct Simulation {
  double step_seconds = 0;
  std::vector<double> busy;              ///< By rank: seconds of computing.
  std::vector<double> waiting;           ///< By rank: seconds of waiting for messages and the vote.
  std::vector<double> finish;            ///< By rank.
  std::vector<int64_t> state_bytes;      ///< By rank: masters, moments, compute copies.
  std::vector<int64_t> peak_bytes;       ///< By rank: state and live values.
  double exposed_reduction_seconds = 0;  ///< Of gradients, after the last worker reached its vote.
  std::vector<TimelineEntry>
      timeline;  ///< When asked for; `instruction` indexes the rank's Program.
};

struct SimulationOptions {
  bool timeline = false;
};

/// One step of `programs` (by rank) on `cluster` (same ranks).
///
/// Contention for cores between workers of one host is not modelled; profiles are measured one
/// worker at a time. Cost:    O(instructions · log workers). Thread:  pure. Errors:
/// kInvalidArgument  programs and cluster differ in size, or the cluster is not usable
///          kInternal         the programs do not match each other
Result<Simulation> Simulate(const graph::Graph& graph,
                            const std::vector<program::Program>& programs,
                            const ClusterProfile& cluster,
                            const SimulationOptions& options = {});

/// Lowers `plan` and simulates it. `cluster` may list its workers in any order and may hold more of
/// them: they are found by the plan's names. Errors: kInvalidArgument (see Lower and
/// SelectWorkers).
Result<Simulation> ScorePlan(const graph::Graph& graph,
                             const program::Plan& plan,
                             const ClusterProfile& cluster);

}  // namespace heddle::planner
