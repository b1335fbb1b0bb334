/// \file
/// Programs of a group that runs a whole graph together, made in the simplest way: the microbatches
/// one after the other, each in the order of the local graphs. Knows nothing of lowering.
#pragma once

#include <vector>

#include "engine/graph/sharding/localise.h"
#include "engine/program/program.h"

namespace heddle::runtime::testing {

/// By position in the group.
struct GroupPrograms {
  std::vector<graph::LocalGraph> members;
  std::vector<program::Program> programs;
};

/// The Programs of a group of these ranks, by position, which are 0, 1, … in any order. An
/// exchange's input is freed directly behind it, and its output is awaited where it is first read.
/// Preconditions: the layout is valid, and no two members have a part of a cut parameter in common.
GroupPrograms ProgramsOf(const graph::Graph& graph,
                         const graph::Layout& layout,
                         const std::vector<int>& group,
                         int microbatches);

}  // namespace heddle::runtime::testing
