/// \file
/// The template of a stage: the steps of one of its workers for one microbatch, forward and
/// backward, with every value's last use. It is the same for all microbatches, so it is computed
/// once and then instantiated in the schedule's order.
#pragma once

#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/program.h"
#include "engine/program/stage_graph.h"

namespace heddle::program {

/// A value that is added to the gradient of a piece of a parameter.
struct StageContribution {
  int value = -1;
  graph::ParameterId parameter = -1;
  int piece = 0;
  int use = 0;
};

/// An instruction of one microbatch, on values instead of slots.
struct StageStep {
  Code code = Code::kRun;  ///< kLoad, kRun, kSend, kRecv, kExchange or kAwait.
  graph::NodeId node = -1;
  int exchange = -1;              ///< Index in StageTemplate::exchanges.
  bool again = false;             ///< kExchange: of a forward that runs again.
  int peer = -1;                  ///< Rank of the peer, for kSend and kRecv.
  graph::TensorId message = -1;   ///< For kSend and kRecv: the tensor of the job's graph.
  std::vector<int> inputs = {};   ///< Indices into StageTemplate::values; -1 for a parameter.
  std::vector<int> outputs = {};  ///< Indices into StageTemplate::values.
  std::vector<int> frees = {};    ///< Values whose last use this step is, ascending.
  std::vector<StageContribution> contributes = {};  ///< What can be added up after the step.
};

/// The template of a stage. A tensor appears twice in `values` if it is recomputed. What is added
/// to gradients, and the loss, are never freed by a step, because they outlive the microbatch.
struct StageTemplate {
  std::vector<graph::TensorId> values = {};
  std::vector<StageStep> forward = {};
  std::vector<StageStep> backward = {};
  std::vector<graph::Exchange> exchanges = {};  ///< Alike for all members.
  int loss = -1;  ///< Index of the loss's value; -1: this worker does not report it.
};

/// The template of a stage of one worker.
StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage);

/// The template of the member at `member` of a stage of a group. `graph` is the job's graph.
StageTemplate BuildStageTemplate(const graph::Graph& graph,
                                 const GraphAnalysis& analysis,
                                 const Pipeline& pipeline,
                                 int stage,
                                 const StageGraph& group,
                                 int member);

}  // namespace heddle::program
