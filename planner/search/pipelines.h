/// \file
/// The best pipelines of every composition (the number of workers of each class): their order of
/// classes, cuts and recomputation, by dynamic programming over suffixes.
///
/// A pipeline whose stage j takes t_j seconds for a microbatch and c_j seconds for transfers at its
/// cut, in both directions, completes m microbatches under 1F1B in about (m - 1) · period + fill
/// seconds, where fill = Σ (t_j + c_j) and
///     period = max_j max(t_j, link_j, (Σ_{i ≥ j} t_i + c_i) / stages from j on):
/// The last term is there because stage j keeps only that many microbatches in flight. All three
/// terms grow with the suffix, so that a suffix that is worse in both period and fill can be
/// dropped: the table keeps the Pareto fronts of (composition, first class, first segment). It is
/// exact for this model, up to the limit on the size of a front; schedule.h prices the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/predictor/costs.h"
#include "planner/search/shares.h"

namespace heddle::planner {

/// The number of workers of each class in a pipeline.
using Composition = std::vector<int>;

/// A stage [first_segment, last_segment) on a worker of a class.
struct ClassStage {
  int worker_class = 0;
  int first_segment = 0;
  int last_segment = 0;
  bool recompute = false;
};

/// The input of the table: classes of workers, and limits.
struct PipelineInput {
  const SegmentTable* table = nullptr;
  const std::vector<WorkerCosts>* costs = nullptr;  ///< By class.
  std::vector<int> counts;                          ///< By class: number of workers.
  /// Returns the link between two different workers of the classes.
  std::function<comm::Link(int from, int to)> link;
  /// Returns true if a worker of the class has the memory for segments [first, last) as the stage
  /// with `depth` stages from it to the pipeline's end.
  std::function<bool(int worker_class, int first, int last, int depth, bool recompute)> fits;
  int max_depth = 8;            ///< Most stages of a pipeline.
  int max_compositions = 4096;  ///< Most compositions; those of one worker are always complete.
  int microbatches = 1;         ///< Microbatches of a pipeline, for BestCuts.
};

/// The best pipelines of each composition.
class PipelineTable {
 public:
  /// Computes the table. Cost: O(compositions · classes² · segments² · labels).
  static PipelineTable Build(const PipelineInput& input);

  /// The compositions that have at least one pipeline, shallow ones first.
  const std::vector<Composition>& compositions() const { return compositions_; }
  /// The Pareto front over (period, fill) of compositions()[index], by period; not empty.
  const std::vector<Pace>& Paces(size_t index) const { return paces_[index]; }
  /// The stages of the pipeline with Paces(index)[pace].
  const std::vector<ClassStage>& Stages(size_t index, size_t pace) const {
    return stages_[index][pace];
  }

 private:
  std::vector<Composition> compositions_;
  std::vector<std::vector<Pace>> paces_;
  std::vector<std::vector<std::vector<ClassStage>>> stages_;
};

/// Returns the cuts and the recomputation that minimise the time of input.microbatches for the
/// workers `order`, given by class, in this order. Empty if no cuts fit.
std::vector<ClassStage> BestCuts(const PipelineInput& input, const std::vector<int>& order);

}  // namespace heddle::planner
