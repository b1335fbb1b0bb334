/// \file
/// Transitions from one generation to the next: begins them, takes them from stage to stage, and
/// puts the new generation in force.
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

/// The other components, which a transition reads and changes while it handles an event.
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

/// Begins the pause after drift: a plan for it is in force, or none will be.
inline void AnswerDrift(Scene& scene) {
  scene.drift.Answered(scene.job.policy.drift, scene.now);
  scene.link_drift.Answered(scene.job.policy.drift, scene.now);
}

/// What the caller has to do as a result.
struct Consequence {
  std::vector<Loss> losses = {};
  std::optional<EndJob> end = {};
  /// The job is to be suspended: why no plan was found without the workers that must leave.
  std::optional<std::string> suspend = {};
};

/// The transition in progress, if there is one. Thread: one caller at a time. A copy is an
/// independent machine.
class Transitions {
 public:
  /// The transition in progress; nullopt if there is none.
  const std::optional<Transition>& current() const { return current_; }
  /// Drops the transition in progress. Workers that are no members are considered again.
  void Drop(const Generations& generations);

  /// Without a generation: begins to form one, once enough workers have joined.
  Consequence Form(Scene& scene);
  /// With a generation in force: begins a change if workers have joined, leave or have drifted, if
  /// the last change made steps slower, or once a lease has passed since a recovery, whose plan was
  /// found in a hurry. Does nothing while a member is absent.
  Consequence Consider(Scene& scene);
  /// Ends the generation in force: fences it and asks the survivors what they hold.
  Consequence Recover(Cause cause, Scene& scene);

  Consequence OnPlanned(const PlanOutcome& outcome, Scene& scene);
  Consequence OnPrepared(const std::string& worker, const wire::Prepared& message, Scene& scene);
  Consequence OnStopped(const std::string& worker,
                        int64_t generation,
                        int64_t applied_step,
                        Scene& scene);
  /// True if a Halted of the worker for this fence is awaited; TakeHalted is called then.
  bool AwaitsHalted(const std::string& worker, int64_t fence) const;
  void TakeHalted(const std::string& worker, const wire::Halted& message);
  Consequence OnReady(const std::string& worker, const wire::Ready& message, Scene& scene);
  /// Handles the loss of a worker during the transition.
  Consequence OnLost(const std::string& worker, Scene& scene);
  /// Handles overdue replies, and repeats plan requests that are due.
  Consequence CheckDeadline(Scene& scene);
  /// Leaves Halting, if all survivors have replied and further losses need not be waited for.
  Consequence LeaveHalt(Scene& scene);
  /// Extends the stage's deadline by `absence`, in which no worker could be heard.
  void Excuse(Duration absence);
  std::optional<Time> NextDeadline(const JobPolicy& policy, const Roster& roster) const;

  /// Resends the stage's command to a worker that came back and has not answered it.
  void Repeat(const Worker& worker, Scene& scene) const;
  /// Lets a plan with this worker be looked for again.
  void Forget(const std::string& worker) { considered_.erase(worker); }
  /// Marks the predecessor's workers as considered: a plan with them is in force.
  void Restore(const Roster& roster);
  Status Check(const Roster& roster,
               const Generations& generations,
               const StateSources& sources) const;

 private:
  Consequence AskForPlan(Planning planning, Scene& scene);
  /// Ends a change that was tried before and taken back; the plan in force stays.
  Consequence KeepTried(Scene& scene);
  /// Ends a change whose plan was weighed; the plan in force stays.
  Consequence KeepPlan(Scene& scene);
  /// Handles a plan request that failed. `asks_again`: it is repeated later; false: the planner
  /// still works on it, and its answer will be taken.
  Consequence RefusePlan(const Status& status, Scene& scene, bool asks_again = true);
  Consequence SendPrepare(const PlanOutcome& plan, Scene& scene);
  void SendStop(Scene& scene);
  void TakeNewestCheckpoint(SourceOption& origin, Scene& scene);
  void SendStart(NextGeneration next, Scene& scene);
  void Go(Scene& scene);

  std::optional<Transition> current_;
  int64_t next_request_ = 1;
  /// Workers with which a plan has been looked for since they joined.
  std::set<std::string> considered_;
  /// When a better plan is looked for than the one in force, which was found in a hurry. It needs
  /// no deadline, because members that train send messages all the time.
  std::optional<Time> improve_at_;
};

}  // namespace heddle::elastic
