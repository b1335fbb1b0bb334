/// \file
/// Computes the memory of a stage's Program without lowering it. All microbatches of a stage repeat
/// one template, so that the peak follows from a few of its passes.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/lowering/gradient_sums.h"
#include "engine/program/lowering/joint_sums.h"
#include "engine/program/lowering/stage_template.h"
#include "engine/program/plan.h"

namespace heddle::program {

/// The properties of a stage that determine its memory.
struct FootprintStage {
  int first_segment = 0;
  int last_segment = 0;  ///< One past the last segment.
  bool recompute = false;
  int warm_up = 0;           ///< Pipeline::WarmUp.
  int first_microbatch = 0;  ///< First microbatch of the pipeline.
  int microbatches = 0;      ///< Number of microbatches of the pipeline.
  int pipelines = 1;         ///< Pipelines of the plan; if there are others, gradients are reduced.
};

/// The first microbatch to assume if that of a pipeline is not known yet: no other leaves more
/// partial sums after any number of microbatches.
constexpr int kWorstFirstMicrobatch = 1;

/// Computes the peak bytes of stages of a graph, which must outlive it. Thread: one caller at a
/// time, because intermediate results are cached.
class Footprint {
 public:
  /// Analyses `graph`. `divides_optimizer`: the stages are those of plans that do. Errors: those of
  /// Analyze.
  static Result<Footprint> Create(const graph::Graph& graph,
                                  Determinism determinism,
                                  bool divides_optimizer = false);

  /// The exact sum of StateBytes and PeakSlotBytes of the Program of a worker that runs the stage; if
  /// the optimizer is divided, at least that of the worker that keeps the most of each parameter.
  /// Cost: the stage's nodes at the first call; then a pass over them for each distinct state of
  /// the memory before a backward, about twice the logarithm of the microbatches; and the
  /// microbatches.
  int64_t PeakBytes(const FootprintStage& stage);

  /// The same sum for a worker of a plan that fits the graph, also for a member of a group. Cost:
  /// besides, that of the stage's graph and template. Errors: those of BuildStageGraph.
  Result<int64_t> PeakBytes(const Plan& plan, int rank) const;

 private:
  /// A step of a template. Its contributions to gradients are those of Trace::contributions from
  /// index `contributions` up to that of the next step.
  struct Step {
    int64_t allocated = 0;
    int64_t freed = 0;
    size_t contributions = 0;
  };
  /// The gradient of a piece of a parameter that the worker holds.
  struct Gradient {
    PieceKey key = {-1, 0};
    int uses = 0;  ///< Number of what the worker contributes for one microbatch.
    int64_t contribution_bytes = 0;
    int64_t sum_bytes = 0;
    bool tied = false;      ///< Other workers of the pipeline hold it, too.
    SingleSum single = {};  ///< How it is reduced.
  };
  /// The memory properties of a stage that are the same for all its microbatches.
  struct Trace {
    int64_t state = 0;         ///< Bytes of the state.
    int64_t forward_peak = 0;  ///< Peak bytes of one forward above those at its beginning.
    int64_t kept = 0;          ///< Bytes kept from a forward until its backward.
    int64_t loss = 0;          ///< Bytes kept from a forward until the vote.
    std::vector<Step> backward = {};
    std::vector<size_t> contributions = {};  ///< Indices of gradients, by step.
    std::vector<Gradient> gradients = {};
    /// Gradients in the order in which reductions are issued; those of an entry are one collective's.
    std::vector<std::vector<size_t>> queue = {};
  };
  /// The state of the memory around a backward.
  struct Situation {
    int64_t live = 0;   ///< Bytes before the first step, without inputs of issued reductions.
    int before = 0;     ///< Partial sums of each use before the backward.
    int after = 0;      ///< Partial sums of each use after the backward.
    bool last = false;  ///< The backward is that of the last microbatch.
  };
  class Walk;

  Footprint(const graph::Graph& graph,
            GraphAnalysis analysis,
            Determinism determinism,
            bool divides_optimizer);
  const Trace& TraceOf(const FootprintStage& stage);
  Trace MakeTrace(const FootprintStage& stage) const;
  void AddGradients(const FootprintStage& stage, Trace& trace) const;
  void AddGradients(const Plan& plan, const Stage& stage, int rank, Trace& trace) const;
  Gradient GradientOf(const Piece& piece) const;
  /// Fills in the order of reductions: descending segment, then parameter and piece, as
  /// GradientSums issues them, and which are made together.
  void OrderReductions(Trace& trace) const;
  /// Fills in what the steps of a template do to the memory. `graph` has their types.
  static void AddSteps(const StageTemplate& steps, const graph::Graph& graph, Trace& trace);
  int64_t PeakOf(const Trace& trace, const FootprintStage& stage) const;
  /// Number of partial sums of a use after `microbatches` microbatches.
  int Sums(const FootprintStage& stage, int microbatches) const;

  const graph::Graph* graph_;
  GraphAnalysis analysis_;
  bool exact_;
  bool divides_;
  std::map<std::tuple<int, int, bool, int>, Trace> traces_ = {};
};

}  // namespace heddle::program
