#include "planner/predictor/migration.h"

#include <algorithm>
#include <limits>

#include "planner/predictor/simulator.h"

namespace heddle::planner {

Result<MigrationDecision> ShouldMigrate(const MigrationQuestion& question) {
  if (question.graph == nullptr || question.current == nullptr || question.next == nullptr ||
      question.cluster == nullptr || question.moved_bytes < 0 || question.horizon_steps < 0) {
    return InvalidArgumentError("the question of a migration is incomplete");
  }
  HEDDLE_ASSIGN_OR_RETURN(const Simulation current,
                          ScorePlan(*question.graph, *question.current, *question.cluster));
  HEDDLE_ASSIGN_OR_RETURN(const Simulation next,
                          ScorePlan(*question.graph, *question.next, *question.cluster));
  HEDDLE_ASSIGN_OR_RETURN(const ClusterProfile members,
                          SelectWorkers(*question.cluster, question.next->workers));
  double slowest = std::numeric_limits<double>::infinity();
  for (int from = 0; from < members.links.size(); ++from) {
    for (int to = 0; to < members.links.size(); ++to) {
      if (from != to) {
        slowest = std::min(slowest, members.links.At(from, to).bytes_per_second);
      }
    }
  }
  MigrationDecision decision;
  decision.current_seconds = current.step_seconds;
  decision.next_seconds = next.step_seconds;
  decision.cost_seconds =
      question.pause_seconds + static_cast<double>(question.moved_bytes) / slowest;
  const double gain = current.step_seconds - next.step_seconds;
  decision.gain_seconds = gain * static_cast<double>(question.horizon_steps);
  const bool noticeable = gain > question.least_gain * current.step_seconds;
  decision.migrate = noticeable && decision.gain_seconds > decision.cost_seconds;
  decision.reason = fmt::format(
      "{}: step {:.4g} s -> {:.4g} s, gain {:.4g} s over {} steps, moving costs {:.4g} s",
      decision.migrate ? "pays" : (noticeable ? "does not pay" : "gain too small"),
      current.step_seconds, next.step_seconds, decision.gain_seconds, question.horizon_steps,
      decision.cost_seconds);
  return decision;
}

}  // namespace heddle::planner
