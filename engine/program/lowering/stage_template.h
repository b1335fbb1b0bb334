/// \file
/// What a stage does for one microbatch, forward and backward, with every value's last use: the
/// same for all of its microbatches, so that it is worked out once and then stamped out in the
/// schedule's order.
#pragma once

#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/program.h"

namespace heddle::program {

/// One instruction of one microbatch, on values instead of slots.
struct StageStep {
  Code code = Code::kRun;  ///< kLoad, kRun, kSend or kRecv.
  graph::NodeId node = -1;
  int peer = -1;                  ///< Rank, for kSend and kRecv.
  std::vector<int> inputs = {};   ///< Indices into StageTemplate::values; -1 for a parameter.
  std::vector<int> outputs = {};  ///< Likewise.
  std::vector<int> frees = {};    ///< Values whose last use this step is, ascending.
};

/// A tensor appears twice in `values` when it is computed again. Weight gradients and the loss are
/// never freed by a step: they outlive the microbatch.
struct StageTemplate {
  std::vector<graph::TensorId> values = {};
  std::vector<StageStep> forward = {};
  std::vector<StageStep> backward = {};
  int loss = -1;  ///< The loss's value, when this stage computes it.
};

StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage);

}  // namespace heddle::program
