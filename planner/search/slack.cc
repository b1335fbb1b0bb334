#include "planner/search/slack.h"

#include <algorithm>

namespace heddle::planner {

using program::Pipeline;
using program::Plan;
using program::Stage;

namespace {

/// At most as many as the stage before: with one more, which ValidatePlan allows, its next forward
/// would wait for the stage before to do the backward that it has just sent, so that the two would
/// take turns.
int Limit(const Pipeline& pipeline, size_t stage, int most) {
  if (stage + 1 == pipeline.stages.size()) {
    return 0;
  }
  return stage == 0 ? most : std::min(most, pipeline.stages[stage - 1].ahead);
}

}  // namespace

void GiveSlack(const Problem& problem, int most, Plan& plan) {
  for (Pipeline& pipeline : plan.pipelines) {
    for (size_t j = 0; j < pipeline.stages.size(); ++j) {
      Stage& stage = pipeline.stages[j];
      stage.ahead = Limit(pipeline, j, most);
      while (stage.ahead > 0 && !problem.Fits(stage.worker, ShapeOf(plan, pipeline, j))) {
        --stage.ahead;
      }
    }
  }
}

}  // namespace heddle::planner
