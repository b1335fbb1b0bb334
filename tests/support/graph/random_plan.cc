#include "tests/support/graph/random_plan.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/random.h"
#include "tests/support/graph/layouts.h"

namespace heddle::testing {

namespace {

void Shuffle(Random& random, std::vector<int>& values) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random.Below(i)]);
  }
}

std::vector<int> Range(int count) {
  std::vector<int> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(i);
  }
  return values;
}

program::Pipeline RandomPipeline(Random& random, int segments) {
  const auto depth = static_cast<size_t>(random.Between(1, std::min(segments, 5)));
  std::set<int> cuts = {segments};
  while (cuts.size() < depth) {
    cuts.insert(static_cast<int>(random.Between(1, segments)));
  }
  program::Pipeline pipeline;
  int first = 0;
  for (const int cut : cuts) {
    pipeline.stages.push_back(
        {.first_segment = first, .last_segment = cut, .recompute = random.Below(4) == 0});
    first = cut;
  }
  pipeline.microbatches = static_cast<int>(random.Between(1, 7));
  // Any warm-ups that never grow along the pipeline.
  int most = 2;
  for (size_t j = 0; j + 1 < pipeline.stages.size(); ++j) {
    pipeline.stages[j].ahead = static_cast<int>(random.Between(0, most));
    most = pipeline.stages[j].ahead + 1;
  }
  return pipeline;
}

/// A layout of the plan, or a new one, of several members.
int AnyLayout(const graph::Graph& graph, Random& random, program::Plan& plan) {
  const auto index = random.Below(plan.layouts.size() + 1);
  if (index == plan.layouts.size()) {
    graph::Layout layout;
    while (graph::MembersOf(layout) == 1) {
      layout = RandomLayout(graph, random);
    }
    plan.layouts.push_back(std::move(layout));
  }
  return static_cast<int>(index);
}

}  // namespace

program::Plan RandomPlan(uint64_t seed, int segments) {
  Random random(seed);
  program::Plan plan;
  plan.generation = random.Between(1, 1000);
  const int pipelines = static_cast<int>(random.Between(1, 4));
  int stages = 0;
  for (int p = 0; p < pipelines; ++p) {
    plan.pipelines.push_back(RandomPipeline(random, segments));
    stages += static_cast<int>(plan.pipelines.back().stages.size());
  }
  std::vector<int> ranks = Range(stages + static_cast<int>(random.Between(0, 2)));
  for (const int rank : ranks) {
    plan.workers.push_back(fmt::format("worker{}", rank));
  }
  Shuffle(random, ranks);
  size_t next_rank = 0;
  for (program::Pipeline& pipeline : plan.pipelines) {
    for (program::Stage& stage : pipeline.stages) {
      stage.group = {ranks[next_rank++]};
    }
  }
  std::vector<int> order = Range(pipelines);
  Shuffle(random, order);
  int first = 0;
  for (const int p : order) {
    program::Pipeline& pipeline = plan.pipelines[static_cast<size_t>(p)];
    pipeline.first_microbatch = first;
    first += pipeline.microbatches;
  }
  return plan;
}

program::Plan RandomGroupPlan(uint64_t seed, const graph::Graph& graph) {
  program::Plan plan = RandomPlan(seed, static_cast<int>(graph.segments.size()));
  plan.determinism = program::Determinism::kRelaxed;
  Random random(seed + 1);
  for (program::Pipeline& pipeline : plan.pipelines) {
    for (program::Stage& stage : pipeline.stages) {
      if (random.Below(3) == 0) {
        continue;
      }
      stage.layout = AnyLayout(graph, random, plan);
      const int members = graph::MembersOf(plan.layouts[static_cast<size_t>(stage.layout)]);
      while (static_cast<int>(stage.group.size()) < members) {
        stage.group.push_back(static_cast<int>(plan.workers.size()));
        plan.workers.push_back(fmt::format("worker{}", plan.workers.size()));
      }
      Shuffle(random, stage.group);
    }
  }
  return plan;
}

}  // namespace heddle::testing
