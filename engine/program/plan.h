/// \file
/// A Plan is plain data: which workers exist in a generation, which pipelines they form, which
/// segments each stage holds, how many microbatches each pipeline computes. Printable, diffable,
/// loadable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/graph/graph.h"
#include "engine/graph/sharding/layout.h"

namespace heddle::program {

/// The workers that run a stage together, by position: indices into Plan::workers.
using Group = std::vector<int>;

/// A stage: contiguous segments on one worker, or on a group that divides the work of each segment.
struct Stage {
  Group group = {};
  int first_segment = 0;
  int last_segment = 0;  ///< One past the last segment.
  bool recompute =
      false;  ///< Run a segment's forward again before its backward, keeping only its inputs.
  /// Forwards computed earlier than 1F1B needs (eager 1F1B; Zhuang et al., "On Optimizing the
  /// Communication of Model Parallelism", 2023): they cost memory, and keep the stage busy while
  /// messages travel and when a neighbour is late. 0 at the last stage.
  int ahead = 0;
  int layout = -1;  ///< Index into Plan::layouts; -1: the group is one worker, which has all.

  /// The rank of the only worker. Precondition: the group has one.
  int worker() const;
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// A chain of stages that covers the model and computes one contiguous range of microbatch numbers.
struct Pipeline {
  std::vector<Stage> stages = {};
  int first_microbatch = 0;
  int microbatches = 0;
  /// Number of forwards that the stage computes before its first pair of one forward and one
  /// backward: the number of later stages plus Stage::ahead.
  int WarmUp(size_t stage) const;
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

enum class Determinism : uint8_t {
  kExact,    ///< Partial sums by tree nodes: the same bits under any plan.
  kRelaxed,  ///< Each pipeline first adds its own microbatches: fewer bytes.
};

struct Plan {
  int64_t generation = 0;
  /// Names of the generation's members by rank; some may hold no stage.
  std::vector<std::string> workers = {};
  std::vector<Pipeline> pipelines = {};
  /// How groups lay tensors out. Members of a layout are positions in a group.
  std::vector<graph::Layout> layouts = {};
  Determinism determinism = Determinism::kExact;
  /// Whether the holders of a matrix divide its master and moments among them (slices.h).
  bool divides_optimizer = false;
  double predicted_step_seconds = 0;
  std::vector<int64_t> predicted_peak_bytes = {};  ///< By worker: state and values.
  /// By worker: what its process takes of its host's memory; empty: unknown.
  std::vector<int64_t> predicted_process_bytes = {};
  /// transports[a][b]: the transport that comm reported for the pair; empty: unknown.
  std::vector<std::vector<std::string>> transports = {};

  int microbatches() const;  ///< Number of microbatches of the global batch.
  /// Ranks without a stage.
  std::vector<int> IdleWorkers() const;
};

/// Checks that pipelines cover all segments in order, microbatch ranges (of at least one, in any
/// order of pipelines) are contiguous and disjoint from 0 and at most 2^24 in sum, no worker holds
/// two stages or two positions of a group, a group of several has a layout of as many members and
/// is in a relaxed plan, every layout is used, no stage waits for a forward that the one before
/// computes only after its own first backward, worker names are unique, and lists by worker have
/// one entry each. Errors: kInvalidArgument naming the violation.
Status ValidatePlan(const Plan& plan, int segments);

/// Checks also that layouts are valid for the graph (graph::ValidateLayout, of LayoutFor), and that a
/// plan that divides the optimizer is one of a graph that allows it (graph::AdamW::slices).
Status ValidatePlan(const Plan& plan, const graph::Graph& graph);

/// The layout of a graph. One without gradients, for evaluation, lacks tensors of the training graph
/// for which layouts are made, and their placements.
graph::Layout LayoutFor(const graph::Graph& graph, const graph::Layout& layout);

/// A plan with one worker that holds all segments; for tests, profiling and a single device.
Plan SingleWorkerPlan(const std::string& worker, int segments, int microbatches);

std::string PlanToJson(const Plan& plan);
/// Parses a text of PlanToJson. Errors: kInvalidArgument naming the key.
Result<Plan> PlanFromJson(std::string_view text);

/// A description for users: one line per pipeline, with segment names, shares and workers.
std::string Describe(const Plan& plan, const graph::Graph& graph);

/// The ranks that hold each parameter, or a part of it, ascending. Where nothing is cut, the first of
/// them computes the parameter's norm.
std::vector<std::vector<int>> ParameterHolders(const graph::Graph& graph, const Plan& plan);

}  // namespace heddle::program
