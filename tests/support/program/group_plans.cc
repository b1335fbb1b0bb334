#include "tests/support/program/group_plans.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "engine/program/lowering/lower.h"
#include "tests/support/graph/layouts.h"

namespace heddle::testing {
namespace {

using program::Pipeline;
using program::Plan;
using program::Stage;

/// Appends a stage of new workers to the last pipeline.
Stage& AddStage(Plan& plan, const StageCut& cut) {
  std::vector<Stage>& stages = plan.pipelines.back().stages;
  Stage stage{.first_segment = stages.empty() ? 0 : stages.back().last_segment,
              .last_segment = cut.last_segment,
              .layout = cut.layout};
  const int members =
      cut.layout < 0 ? 1 : graph::MembersOf(plan.layouts[static_cast<size_t>(cut.layout)]);
  for (int q = 0; q < members; ++q) {
    stage.group.push_back(static_cast<int>(plan.workers.size()));
    plan.workers.push_back(fmt::format("w{}", plan.workers.size()));
  }
  stages.push_back(std::move(stage));
  return stages.back();
}

void AddPipeline(Plan& plan, int microbatches) {
  const int first = plan.microbatches();
  plan.pipelines.push_back({.first_microbatch = first, .microbatches = microbatches});
}

graph::Layout LayoutOfSeveral(const graph::Graph& graph, Random& random) {
  graph::Layout layout;
  while (graph::MembersOf(layout) == 1) {
    layout = RandomLayout(graph, random);
  }
  return layout;
}

Plan RandomPlanOf(const graph::Graph& graph, uint64_t seed, bool alike) {
  Random random(seed);
  Plan plan;
  plan.determinism = program::Determinism::kRelaxed;
  plan.layouts.push_back(LayoutOfSeveral(graph, random));
  const auto segments = static_cast<int>(graph.segments.size());
  const int pipelines = static_cast<int>(random.Between(1, 2));
  for (int p = 0; p < pipelines; ++p) {
    AddPipeline(plan, static_cast<int>(random.Between(1, 3)));
    std::set<int> cuts = {segments};
    for (int64_t more = random.Between(0, 2); more > 0; --more) {
      cuts.insert(static_cast<int>(random.Between(1, segments)));
    }
    for (const int cut : cuts) {
      int layout = alike || pipelines > 1 ? 0 : static_cast<int>(random.Between(-1, 1));
      if (layout == 1) {
        layout = static_cast<int>(plan.layouts.size());
        plan.layouts.push_back(LayoutOfSeveral(graph, random));
      }
      Stage& stage = AddStage(plan, {.last_segment = cut, .layout = layout});
      stage.recompute = random.Below(3) == 0;
      for (size_t i = stage.group.size(); i > 1; --i) {
        std::swap(stage.group[i - 1], stage.group[random.Below(i)]);
      }
    }
    std::vector<Stage>& stages = plan.pipelines.back().stages;
    stages.front().ahead = stages.size() > 1 ? static_cast<int>(random.Between(0, 1)) : 0;
  }
  return plan;
}

}  // namespace

Plan GroupPlan(std::vector<graph::Layout> layouts,
               const std::vector<std::vector<StageCut>>& pipelines,
               int microbatches) {
  Plan plan;
  plan.determinism = program::Determinism::kRelaxed;
  plan.layouts = std::move(layouts);
  for (const std::vector<StageCut>& stages : pipelines) {
    AddPipeline(plan, microbatches);
    for (const StageCut& cut : stages) {
      AddStage(plan, cut);
    }
  }
  return plan;
}

GroupPrograms RandomGroupPrograms(const graph::Graph& graph, uint64_t seed) {
  for (const bool alike : {false, true}) {
    Plan plan = RandomPlanOf(graph, seed, alike);
    auto programs = program::LowerAll(graph, plan);
    if (programs.ok()) {
      return {.plan = std::move(plan), .programs = *std::move(programs)};
    }
    HEDDLE_CHECK(!alike, "{}", programs.status().ToString());
  }
  return {};
}

}  // namespace heddle::testing
