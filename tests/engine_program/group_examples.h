/// \file
/// Plans of groups into which tests plant faults.
#pragma once

#include "engine/program/plan.h"
#include "tests/support/graph/groups.h"
#include "tests/support/program/group_plans.h"

namespace heddle::testing {

enum class GroupModel {
  kTensorParallel,
  kSequence,
  kSharedKeys,
  kBias,
  kVocabulary,
  kGatheredPositions  ///< A parameter is placed in parts, which no rule reads.
};

/// Two stages of the same two members' shares; one microbatch.
struct GroupExample {
  graph::Graph graph;
  program::Plan plan;
};

inline GroupExample GroupExampleOf(GroupModel model) {
  const graph::ModelConfig config =
      model == GroupModel::kBias || model == GroupModel::kGatheredPositions
          ? SmallModel(graph::ModelFamily::kGpt2, 8, /*tied=*/false)
          : SmallModel(graph::ModelFamily::kLlama, model == GroupModel::kSharedKeys ? 1 : 4,
                       /*tied=*/false);
  GroupExample example{.graph = SmallTrainingGraph(config), .plan = {}};
  graph::Layout layout = LayoutOf(example.graph, config,
                                  {.units = {4, 4},
                                   .vocabulary = model == GroupModel::kVocabulary,
                                   .within_groups = model == GroupModel::kSharedKeys,
                                   .sequence = model == GroupModel::kSequence});
  if (model == GroupModel::kGatheredPositions) {
    layout.tensors["embedding.position.weight"] = {.placement = graph::Placement::Shard(0)};
  }
  example.plan = GroupPlan({std::move(layout)}, {{{3, 0}, {6, 0}}}, 1);
  return example;
}

}  // namespace heddle::testing
