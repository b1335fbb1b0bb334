#include "engine/program/verify/verify_classes.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace heddle::program {

namespace {

using StageShape = std::tuple<int, int, bool, int, int>;
using PipelineShape = std::tuple<std::vector<StageShape>, int, int64_t>;

// The tree nodes that cover a range of numbers are moved, not changed, where the range is moved by
// a multiple of a power of two that it fits into.
int64_t PlaceInTree(const Pipeline& pipeline) {
  return pipeline.first_microbatch %
         static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(pipeline.microbatches)));
}

PipelineShape ShapeOf(const Pipeline& pipeline, Determinism determinism) {
  std::vector<StageShape> stages;
  stages.reserve(pipeline.stages.size());
  for (const Stage& stage : pipeline.stages) {
    stages.emplace_back(stage.first_segment, stage.last_segment, stage.recompute, stage.ahead,
                        stage.layout);
  }
  return {std::move(stages), pipeline.microbatches,
          determinism == Determinism::kExact ? PlaceInTree(pipeline) : 0};
}

}  // namespace

Followed FollowedOf(const Plan& plan, VerifyScope scope) {
  Followed followed;
  followed.twins.resize(plan.workers.size());
  if (scope == VerifyScope::kEveryWorker) {
    followed.ranks.resize(plan.workers.size());
    std::iota(followed.ranks.begin(), followed.ranks.end(), 0);
    return followed;
  }
  followed.ranks = plan.IdleWorkers();
  std::map<PipelineShape, const Pipeline*> first;
  for (const Pipeline& pipeline : plan.pipelines) {
    const auto [found, is_new] = first.emplace(ShapeOf(pipeline, plan.determinism), &pipeline);
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const Group& group = pipeline.stages[s].group;
      if (is_new) {
        followed.ranks.insert(followed.ranks.end(), group.begin(), group.end());
        continue;
      }
      const Pipeline& other = *found->second;
      for (size_t q = 0; q < group.size(); ++q) {
        followed.twins[static_cast<size_t>(other.stages[s].group[q])].push_back(
            {.rank = group[q], .shift = pipeline.first_microbatch - other.first_microbatch});
      }
    }
  }
  std::sort(followed.ranks.begin(), followed.ranks.end());
  return followed;
}

}  // namespace heddle::program
