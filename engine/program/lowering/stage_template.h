/// \file
/// The template of a stage: its steps for one microbatch, forward and backward, with every value's
/// last use. It is the same for all microbatches, so it is computed once and then instantiated in
/// the schedule's order.
#pragma once

#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/program.h"

namespace heddle::program {

/// An instruction of one microbatch, on values instead of slots.
struct StageStep {
  Code code = Code::kRun;  ///< kLoad, kRun, kSend or kRecv.
  graph::NodeId node = -1;
  int peer = -1;                  ///< Rank of the peer, for kSend and kRecv.
  std::vector<int> inputs = {};   ///< Indices into StageTemplate::values; -1 for a parameter.
  std::vector<int> outputs = {};  ///< Indices into StageTemplate::values.
  std::vector<int> frees = {};    ///< Values whose last use this step is, ascending.
};

/// The template of a stage. A tensor appears twice in `values` if it is recomputed. Weight
/// gradients and the loss are never freed by a step, because they outlive the microbatch.
struct StageTemplate {
  std::vector<graph::TensorId> values = {};
  std::vector<StageStep> forward = {};
  std::vector<StageStep> backward = {};
  int loss = -1;  ///< Index of the loss's value; -1: this stage does not compute it.
};

StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage);

}  // namespace heddle::program
