/// \file
/// The reference interpreter: all workers' Programs in one process and one thread, with plain
/// mailboxes in place of communication, checked against the graph run on a single device with no
/// Program at all. Slow and obvious; it shares the kernels with the runtime and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/program/program.h"
#include "engine/runtime/batch.h"

namespace heddle::runtime {

struct ReferenceOptions {
  int64_t steps = 1;
  int64_t microbatches = 1;
  uint64_t seed = 0;
  double learning_rate = 1e-3;
  SampleReader read_sample;
};

struct ReferenceStep {
  double loss = 0;
  double gradient_norm = 0;
};

/// Values after the last step, by parameter name; fp64 whatever the graph's type.
struct ReferenceResult {
  std::vector<ReferenceStep> steps;
  std::map<std::string, std::vector<double>> masters;
};

/// Runs the graph itself: every node for every microbatch, gradients added in microbatch order.
Result<ReferenceResult> RunSingleDevice(const graph::Graph& graph, const ReferenceOptions& options);

/// Runs the Programs. Every holder of a parameter must end with the same bits.
/// Errors: kInternal (deadlock, a read of a freed value, holders that differ), saying where.
Result<ReferenceResult> RunPrograms(const graph::Graph& graph,
                                    const std::vector<program::Program>& programs,
                                    const ReferenceOptions& options);

/// The largest |a - b| / (|b| + floor) over losses, norms and masters.
double LargestDifference(const ReferenceResult& a, const ReferenceResult& b, double floor);

}  // namespace heddle::runtime
