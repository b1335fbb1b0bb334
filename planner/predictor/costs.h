/// \file
/// The numbers that the search asks for millions of times: seconds and bytes of any run of segments
/// on any kind of worker, as prefix sums over segments. Workers that are exchangeable (equal
/// profiles, equal links) form one class.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "planner/predictor/cluster.h"

namespace heddle::planner {

/// What does not depend on the worker.
struct SegmentTable {
  int segments = 0;
  /// Bytes and messages that cross cut s (between segments s-1 and s) forwards and backwards, a
  /// microbatch.
  std::vector<int64_t> forward_bytes;
  std::vector<int64_t> backward_bytes;
  std::vector<int> forward_messages;
  std::vector<int> backward_messages;
  std::vector<std::vector<graph::ParameterId>> parameters;  ///< By segment, ascending.
  std::vector<int64_t> parameter_bytes;  ///< By parameter: of the summed gradient.
  std::vector<int64_t> state_bytes;      ///< By parameter: master, moments, compute copy.
  std::vector<int64_t> stash_bytes;      ///< Forward values of a segment kept until its backward.
  std::vector<int64_t> working_bytes;  ///< Largest set of values that live only inside the segment.
  std::vector<bool> run_again;         ///< By node: recomputation runs it once more.
};

Result<SegmentTable> BuildSegmentTable(const graph::Graph& graph);

/// Seconds of a kind of worker, as prefix sums: value[s] covers segments [0, s).
struct WorkerCosts {
  std::vector<double> forward;
  std::vector<double> backward;  ///< Backward, weight gradients and folding them.
  std::vector<double> again;     ///< Forward nodes that recomputation runs once more.
  std::vector<double> update;
  int64_t memory_bytes = 0;    ///< 0: unlimited.
  double message_seconds = 0;  ///< Of the worker, for each message.

  double Forward(int first, int last) const { return Of(forward, first, last); }
  double Backward(int first, int last) const { return Of(backward, first, last); }
  double Again(int first, int last) const { return Of(again, first, last); }
  double Update(int first, int last) const { return Of(update, first, last); }
  /// Seconds of one microbatch on a stage [first, last).
  double Stage(int first, int last, bool recompute) const {
    return Forward(first, last) + Backward(first, last) + (recompute ? Again(first, last) : 0);
  }

 private:
  static double Of(const std::vector<double>& sums, int first, int last) {
    return sums[static_cast<size_t>(last)] - sums[static_cast<size_t>(first)];
  }
};

/// Cost: one pricing of each distinct node signature. Thread: pure.
WorkerCosts BuildWorkerCosts(const graph::Graph& graph,
                             const SegmentTable& table,
                             const program::WorkerProfile& profile);

/// Workers grouped into classes; members are exchangeable in any plan.
struct WorkerClasses {
  std::vector<int> class_of;              ///< By rank.
  std::vector<std::vector<int>> members;  ///< By class: ranks, ascending. Classes by first member.
};

/// Whether two workers were measured alike in everything but their names.
bool SameProfile(const program::WorkerProfile& a, const program::WorkerProfile& b);

/// Exact classes: swapping two members changes neither profile nor any link. Cost: O(n² · classes).
WorkerClasses ExactClasses(const ClusterProfile& cluster);

/// At most `limit` classes of workers of about equal speed and memory (for search only; the chosen
/// plan is scored with the workers' own numbers).
WorkerClasses CoarseClasses(const ClusterProfile& cluster,
                            const std::vector<WorkerCosts>& costs,
                            int limit);

/// Estimate of a worker's peak bytes on a stage; the search replaces it by the exact figure where
/// it matters.
int64_t EstimateStageBytes(const SegmentTable& table,
                           int first,
                           int last,
                           int in_flight,
                           int microbatches,
                           bool recompute);

}  // namespace heddle::planner
