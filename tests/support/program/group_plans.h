/// \file
/// Plans with groups, for tests: as asked for, and random ones that can be lowered.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/program/program.h"

namespace heddle::testing {

/// A stage up to a segment, exclusive, in a layout of the plan; -1: one worker.
struct StageCut {
  int last_segment = 0;
  int layout = -1;
};

/// A relaxed plan whose pipelines have these stages and as many microbatches each. Ranks count up by
/// pipeline, stage and position.
program::Plan GroupPlan(std::vector<graph::Layout> layouts,
                        const std::vector<std::vector<StageCut>>& pipelines,
                        int microbatches);

struct GroupPrograms {
  program::Plan plan;
  std::vector<program::Program> programs;
};

/// A function of (graph, seed): one or two pipelines of one to three stages, some recomputed or
/// ahead, of groups of two to eight workers with ranks in no order. With one pipeline the stages
/// have any layouts, or are one worker; two lay parameters out alike.
GroupPrograms RandomGroupPrograms(const graph::Graph& graph, uint64_t seed);

}  // namespace heddle::testing
