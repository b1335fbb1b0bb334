/// \file
/// Tables of the costs that the search reads millions of times: seconds and bytes of any range of
/// segments on any kind of worker, as prefix sums over segments. Workers that are exchangeable
/// (equal profiles, equal links) form one class.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "planner/predictor/cluster.h"

namespace heddle::planner {

/// Costs that do not depend on the worker.
/// Gradients that one collective sums.
struct SegmentSum {
  int64_t bytes = 0;
  int64_t gathered = 0;  ///< Of the compute copy; 0: each holder keeps all of the state.
};

struct SegmentTable {
  int segments = 0;
  /// Bytes and messages of a microbatch that cross cut s, between segments s-1 and s, forwards and
  /// backwards.
  std::vector<int64_t> forward_bytes;
  std::vector<int64_t> backward_bytes;
  std::vector<int> forward_messages;
  std::vector<int> backward_messages;
  std::vector<std::vector<graph::ParameterId>> parameters;  ///< By segment, ascending.
  std::vector<int64_t> parameter_bytes;  ///< By parameter: bytes of its summed gradient.
  /// By parameter: bytes of the compute copy, which its holders gather in every step if the optimizer
  /// is divided; 0: its state is not divided.
  std::vector<int64_t> gathered_bytes;
  std::vector<std::vector<SegmentSum>> sums;          ///< By segment: of `parameters`.
  std::vector<std::vector<SegmentSum>> divided_sums;  ///< The same if the optimizer is divided.
  std::vector<int64_t> state_bytes;    ///< By parameter: bytes of master, moments, compute copy.
  std::vector<int64_t> stash_bytes;    ///< By segment: forward values kept until its backward.
  std::vector<int64_t> working_bytes;  ///< By segment: most bytes of a node's inputs and outputs.
  std::vector<bool> run_again;         ///< By node: true if recomputation runs it once more.
};

/// Computes the table of a graph. Errors: kInvalidArgument (the graph has no segments, or a node
/// lies in none of them), those of program::Analyze.
Result<SegmentTable> BuildSegmentTable(const graph::Graph& graph);

/// Seconds of one microbatch on a kind of worker, as prefix sums: value[s] covers segments [0, s).
struct WorkerCosts {
  std::vector<double> forward;
  std::vector<double> backward;  ///< Backward, weight gradients and folding them.
  std::vector<double> again;     ///< Forward nodes that recomputation runs once more.
  std::vector<double> update;    ///< Updates of the parameters, once a step.
  int64_t memory_bytes = 0;      ///< Memory of the worker; 0: unlimited.
  double message_seconds = 0;    ///< Time of the worker for each message.

  // Seconds of segments [first, last).
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

/// Computes the costs of a worker with this profile. Cost: one pricing of each distinct node
/// signature. Thread: pure.
WorkerCosts BuildWorkerCosts(const graph::Graph& graph,
                             const SegmentTable& table,
                             const program::WorkerProfile& profile);

/// Workers grouped into classes of exchangeable members.
struct WorkerClasses {
  std::vector<int> class_of;              ///< By rank: the worker's class.
  std::vector<std::vector<int>> members;  ///< By class: ranks, ascending.
};

/// True if the profiles are equal in everything but the names.
bool SameProfile(const program::WorkerProfile& a, const program::WorkerProfile& b);

/// Groups workers exactly: swapping two members changes neither a profile nor a link. Classes are
/// ordered by their first member. Cost: O(n² · classes).
WorkerClasses ExactClasses(const ClusterProfile& cluster);

/// Groups workers of about equal speed and memory into at most `limit` classes. For the search
/// only: the chosen plan is scored with the workers' own costs.
WorkerClasses CoarseClasses(const ClusterProfile& cluster,
                            const std::vector<WorkerCosts>& costs,
                            int limit);

/// Estimates a worker's peak bytes on a stage; the search computes the exact figure where the
/// estimate does not decide (StageMemory).
int64_t EstimateStageBytes(const SegmentTable& table,
                           int first,
                           int last,
                           int in_flight,
                           int microbatches,
                           bool recompute);

}  // namespace heddle::planner
