/// \file
/// The best pipelines of every composition (how many workers of each class): order of the classes,
/// layer cuts and recomputation, by dynamic programming over suffixes.
///
/// A pipeline of stages j with t_j seconds a microbatch and c_j seconds of transfer (both ways) at
/// its cuts completes m microbatches under 1F1B in about (m - 1) · period + fill, where fill = Σ
/// (t_j + c_j) and
///     period = max_j max(t_j, link_j, (Σ_{i ≥ j} t_i + c_i) / stages from j on):
/// the last term because stage j keeps only that many microbatches in flight. All three grow with
/// the suffix, so a suffix that is worse in both period and fill can be forgotten: the table keeps
/// the Pareto fronts of (composition, first class, first segment). Exact for this model; schedule.h
/// prices the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/predictor/costs.h"
#include "planner/search/shares.h"

namespace heddle::planner {

/// Workers of each class.
using Composition = std::vector<int>;

struct ClassStage {
  int worker_class = 0;
  int first_segment = 0;
  int last_segment = 0;
  bool recompute = false;
};

struct PipelineQuestion {
  const SegmentTable* table = nullptr;
  const std::vector<WorkerCosts>* costs = nullptr;  ///< By class.
  std::vector<int> counts;                          ///< By class.
  /// Link between (different) workers of two classes.
  std::function<comm::Link(int from, int to)> link;
  /// Whether a worker of the class has the memory for a stage with that many microbatches in
  /// flight.
  std::function<bool(int worker_class, int first, int last, int depth, bool recompute)> fits;
  int max_depth = 8;
  int max_compositions = 4096;
  int microbatches = 1;
};

class PipelineTable {
 public:
  /// Cost: O(compositions · classes² · segments² · labels).
  static PipelineTable Build(const PipelineQuestion& question);

  /// Compositions that have at least one pipeline, shallow ones first.
  const std::vector<Composition>& compositions() const { return compositions_; }
  /// Pareto front over (period, fill) of compositions()[index]; not empty.
  const std::vector<Pace>& Paces(size_t index) const { return paces_[index]; }
  const std::vector<ClassStage>& Stages(size_t index, size_t pace) const {
    return stages_[index][pace];
  }

 private:
  std::vector<Composition> compositions_;
  std::vector<std::vector<Pace>> paces_;
  std::vector<std::vector<std::vector<ClassStage>>> stages_;
};

/// The same for one given order of workers: the cuts (and recomputation) that minimise the time of
/// `microbatches`. Empty when nothing fits.
std::vector<ClassStage> BestCuts(const PipelineQuestion& question, const std::vector<int>& order);

}  // namespace heddle::planner
