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

/// Nominal rates times `speed`; no measured nodes.
program::WorkerProfile SpeedProfile(const std::string& name, double speed);

/// Workers "w0", "w1", … of these speeds; all links alike.
ClusterProfile ClusterOf(const std::vector<double>& speeds,
                         double bytes_per_second = 5e9,
                         double latency_seconds = 20e-6);

/// Seconds of one microbatch of the whole model on a worker alone.
double AloneSeconds(const graph::Graph& graph,
                    const program::WorkerProfile& profile,
                    int microbatches);

/// Throughput of a step over the summed throughputs of the workers alone.
double RSum(const graph::Graph& graph,
            const ClusterProfile& cluster,
            int microbatches,
            double step_seconds);

}  // namespace heddle::planner
