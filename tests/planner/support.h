/// \file
/// Graphs and clusters for the planner's tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/program/plan.h"
#include "planner/predictor/cluster.h"

namespace heddle::planner {

struct ModelSize {
  int layers = 2;
  int64_t hidden = 64;
  int64_t sequence = 64;
  int64_t vocabulary = 256;
};

/// A differentiated Llama-style graph of one sequence a microbatch.
graph::Graph LlamaGraph(const ModelSize& size);

constexpr double kNominalFlops = 2e9;

/// A profile of a worker with the nominal rates times `speed`, without measured nodes.
program::WorkerProfile SpeedProfile(const std::string& name, double speed);

/// A cluster of workers "w0", "w1", … with these speeds, all links alike.
ClusterProfile ClusterOf(const std::vector<double>& speeds,
                         double bytes_per_second = 5e9,
                         double latency_seconds = 20e-6);

/// The seconds that one worker alone takes for a step of `microbatches` of the whole model.
double AloneSeconds(const graph::Graph& graph,
                    const program::WorkerProfile& profile,
                    int microbatches);

/// The throughput of a step, divided by the sum of the throughputs of the workers alone.
double RSum(const graph::Graph& graph,
            const ClusterProfile& cluster,
            int microbatches,
            double step_seconds);

}  // namespace heddle::planner
