/// \file
/// The steps of a stage for one microbatch, alike for all of its members and in the order in which
/// all of them make them. Exchanges are issued directly behind what they read.
#pragma once

#include <span>
#include <vector>

#include "engine/program/lowering/batch_axis.h"
#include "engine/program/stage_graph.h"

namespace heddle::program {

/// A node or an exchange; the other is -1.
struct StageAction {
  graph::NodeId node = -1;
  int exchange = -1;  ///< Index in StageOrder::exchanges.
  int segment = 0;    ///< With which it runs again: that of what an exchange reads, or its reader.
};

struct StageOrder {
  std::vector<StageAction> forward = {};
  std::vector<StageAction> backward = {};
  /// Those of the stage, in the order in which they are issued first.
  std::vector<graph::Exchange> exchanges = {};
};

/// The nodes of a stage of one worker.
StageOrder OrderOf(const graph::Graph& graph, const GraphAnalysis& analysis, const Stage& stage);

/// The steps of a stage of a group. An exchange of which only the backward reads the result is made
/// there, before its first reader.
StageOrder OrderOf(const StageGraph& group, const Stage& stage);

}  // namespace heddle::program
