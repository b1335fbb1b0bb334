/// \file
/// One training step in doubles with the dense evaluator, on one device: what any set of Programs
/// has to compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/graph/graph.h"
#include "tests/support/graph/dense_evaluator.h"

namespace heddle::testing {

/// A parameter, or the part of it that a worker has.
struct DenseParameter {
  DenseTensor master;
  DenseTensor exp_avg;
  DenseTensor exp_avg_sq;
};

/// What a step begins with. Moments are not zero, so that an update depends on the size of its
/// gradient.
struct DenseStep {
  std::vector<DenseParameter> parameters;  ///< By parameter, whole.
  std::vector<DenseTensor> tokens;         ///< By microbatch.
  std::vector<DenseTensor> targets;
  DenseContext context;  ///< Its sample is that of microbatch 0.
  double learning_rate = 0.01;
};

/// What a step ends with.
struct DenseOutcome {
  std::string refused;  ///< Why it could not go on; empty: it ended.
  double loss = 0;
  double norm = 0;
  std::vector<DenseParameter> parameters;  ///< By parameter, whole.
};

DenseStep RandomStep(const graph::Graph& graph, int microbatches, Random& random);

/// AdamW on a part of a parameter, with the gradient clipped by the norm of all.
void ApplyAdamW(const graph::Graph& graph,
                graph::ParameterId id,
                const DenseStep& step,
                double norm,
                const DenseTensor& gradient,
                DenseParameter& parameter);

/// Runs the graph itself for every microbatch.
DenseOutcome RunOneDevice(const graph::Graph& graph, const DenseStep& step);

/// How two outcomes differ by more than 1e-9; empty: they do not.
std::string Difference(const graph::Graph& graph, const DenseOutcome& a, const DenseOutcome& b);

}  // namespace heddle::testing
