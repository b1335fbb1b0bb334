/// \file
/// How much memory a stage's Program needs, without lowering it: all microbatches of a stage repeat
/// one template, so that its peak follows from a few of its passes.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/plan.h"

namespace heddle::program {

/// What decides a stage's memory.
struct FootprintStage {
  int first_segment = 0;
  int last_segment = 0;
  bool recompute = false;
  int warm_up = 0;  ///< Pipeline::WarmUp.
  int first_microbatch = 0;
  int microbatches = 0;  ///< Of its pipeline.
  bool shared = false;   ///< There are other pipelines, so gradients are reduced.
};

/// Where the first microbatch of a pipeline is not known yet: no other leaves more partial sums
/// after any number of microbatches.
constexpr int kWorstFirstMicrobatch = 1;

/// Peak bytes of stages. Refers to the graph. Thread: one caller at a time, for answers are kept.
class Footprint {
 public:
  /// Errors: kInvalidArgument (see Analyze).
  static Result<Footprint> Create(const graph::Graph& graph, Determinism determinism);

  /// StateBytes and PeakSlotBytes of the Program of whoever runs the stage, in sum and to the byte.
  /// Cost: the stage's nodes, the first time; then a pass over them for each situation in which a
  /// backward finds the memory, about twice the logarithm of the microbatches; and the
  /// microbatches.
  int64_t PeakBytes(const FootprintStage& stage);

 private:
  /// A step of a template. Its contributions to gradients are those from `contributions` on, up to
  /// the next step's.
  struct Step {
    int64_t allocated = 0;
    int64_t freed = 0;
    size_t contributions = 0;
  };
  /// A parameter that the stage holds, and what becomes of its gradient.
  struct Gradient {
    graph::ParameterId parameter = -1;
    int uses = 0;  ///< In this stage.
    int64_t contribution_bytes = 0;
    int64_t sum_bytes = 0;
    bool tied = false;  ///< Other stages of the pipeline hold the parameter, too.
  };
  /// What is the same however often a stage runs.
  struct Trace {
    int64_t state = 0;
    int64_t forward_peak = 0;  ///< Of one forward, from where it begins.
    int64_t kept = 0;          ///< From a forward until its backward.
    int64_t loss = 0;          ///< From a forward until the vote.
    std::vector<Step> backward = {};
    std::vector<size_t> contributions = {};  ///< Indices of gradients, by step.
    std::vector<Gradient> gradients = {};
    std::vector<size_t> queue = {};  ///< Gradients in the order in which reductions are issued.
  };
  /// What a backward finds and leaves.
  struct Situation {
    int64_t live = 0;  ///< Bytes before its first step, without what reductions have issued.
    int before = 0;    ///< Partial sums of each use.
    int after = 0;
    bool last = false;
  };
  class Walk;

  Footprint(const graph::Graph& graph, GraphAnalysis analysis, Determinism determinism);
  const Trace& TraceOf(const FootprintStage& stage);
  Trace MakeTrace(const FootprintStage& stage) const;
  void AddGradients(const FootprintStage& stage, Trace& trace) const;
  /// Partial sums of a use after so many microbatches.
  int Sums(const FootprintStage& stage, int microbatches) const;

  const graph::Graph* graph_;
  GraphAnalysis analysis_;
  bool exact_;
  std::map<std::tuple<int, int, bool>, Trace> traces_ = {};
};

}  // namespace heddle::program
