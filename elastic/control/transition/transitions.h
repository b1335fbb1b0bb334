/// \file
/// How one generation follows another: begins transitions, takes them from stage to stage, and puts
/// the new generation in force.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/agreement/agreement.h"
#include "elastic/control/decisions/decisions.h"
#include "elastic/control/drift/drift.h"
#include "elastic/control/drift/link_drift.h"
#include "elastic/control/links/link_survey.h"
#include "elastic/control/membership/blame.h"
#include "elastic/control/transition/pace.h"
#include "elastic/control/transition/stages.h"

namespace heddle::elastic {

/// What a transition sees and changes of the other rooms while it handles an event.
struct Scene {
  const Job& job;
  Roster& roster;
  Generations& generations;
  Blame& blame;
  LinkSurvey& links;
  Steps& steps;
  Saves& saves;
  StateSources& sources;
  Agreement& agreement;
  Drift& drift;
  LinkDrift& link_drift;
  Formation& formation;
  Recoveries& recoveries;
  Decisions& decisions;
  Outcomes& outcomes;
  Time now;
  Outbox& out;
};

/// A plan for drift is in force, or none is to be: for a time none is looked for.
inline void AnswerDrift(Scene& scene) {
  scene.drift.Answered(scene.job.policy.drift, scene.now);
  scene.link_drift.Answered(scene.job.policy.drift, scene.now);
}

/// What the transition cannot do by itself.
struct Consequence {
  std::vector<Loss> losses = {};
  std::optional<EndJob> end = {};
  /// Those that stay cannot carry the job, and those that leave have no choice: why not.
  std::optional<std::string> suspend = {};
};

/// Thread: one caller at a time. A copy is an independent machine.
class Transitions {
 public:
  /// None: nothing is under way.
  const std::optional<Transition>& current() const { return current_; }
  /// Whoever wanted to join is looked at again.
  void Drop(const Generations& generations);

  /// There is no generation: the first one, once its workers have come.
  Consequence Form(Scene& scene);
  /// A generation is in force: another one where workers have come, leave, or have drifted, or a
  /// lease after a recovery, whose plan was found in a hurry, or the one before where a change made
  /// steps slower. None while a member is absent.
  Consequence Consider(Scene& scene);
  /// The generation in force is over: fences it, and hears what the survivors hold.
  Consequence Recover(Cause cause, Scene& scene);

  Consequence OnPlanned(const PlanOutcome& outcome, Scene& scene);
  Consequence OnPrepared(const std::string& worker, const wire::Prepared& message, Scene& scene);
  Consequence OnStopped(const std::string& worker,
                        int64_t generation,
                        int64_t applied_step,
                        Scene& scene);
  /// Whether this answers the Halt; TakeHalted then.
  bool AwaitsHalted(const std::string& worker, int64_t fence) const;
  void TakeHalted(const std::string& worker, const wire::Halted& message);
  Consequence OnReady(const std::string& worker, const wire::Ready& message, Scene& scene);
  /// A worker that was lost during the transition.
  Consequence OnLost(const std::string& worker, Scene& scene);
  /// Stages that wait for a time.
  Consequence CheckDeadline(Scene& scene);
  Consequence LeaveHalt(Scene& scene);
  /// The coordinator heard nobody for so long, or its machine stood still: nobody was late.
  void Excuse(Duration absence);
  std::optional<Time> NextDeadline(const JobPolicy& policy, const Roster& roster) const;

  /// Says again what a worker that came back may not have heard, or has not answered.
  void Repeat(const Worker& worker, Scene& scene) const;
  void Forget(const std::string& worker) { considered_.erase(worker); }
  /// All workers of a predecessor: a plan with them is in force.
  void Restore(const Roster& roster);
  Status Check(const Roster& roster,
               const Generations& generations,
               const StateSources& sources) const;

 private:
  Consequence AskForPlan(Planning planning, Scene& scene);
  /// The change under way was tried before, and taken back: the plan in force stays.
  Consequence KeepTried(Scene& scene);
  /// The change under way has been weighed: it ends, and the plan in force stays.
  Consequence KeepPlan(Scene& scene);
  /// `asks_again`: on a timer; otherwise the planner still is at it, and its answer will do.
  Consequence RefusePlan(const Status& status, Scene& scene, bool asks_again = true);
  Consequence SendPrepare(const PlanOutcome& plan, Scene& scene);
  void SendStop(Scene& scene);
  void TakeNewestCheckpoint(SourceOption& origin, Scene& scene);
  void SendStart(NextGeneration next, Scene& scene);
  void Go(Scene& scene);

  std::optional<Transition> current_;
  int64_t next_request_ = 1;
  /// A plan with them has been looked for since they came.
  std::set<std::string> considered_;
  /// The plan in force was found in a hurry: when a better one is looked for. No deadline: members
  /// that train speak all the time.
  std::optional<Time> improve_at_;
};

}  // namespace heddle::elastic
