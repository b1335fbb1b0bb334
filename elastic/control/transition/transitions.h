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
#include "elastic/control/lineage/lineage.h"
#include "elastic/control/links/link_survey.h"
#include "elastic/control/membership/blame.h"
#include "elastic/control/transition/pace.h"
#include "elastic/control/transition/stages.h"

namespace heddle::elastic {

/// The other components, which a transition reads and changes while it handles an event.
struct TransitionContext {
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
  Lineage& lineage;
  Time now;
  Outbox& out;
};

/// Begins the pause after drift: a plan for it is in force, or none will be. What is answered about
/// a worker leaves what links are suspected of.
inline void AnswerDrift(TransitionContext& context) {
  context.drift.Answered(context.job.policy.drift, context.now);
  if (context.link_drift.noticed()) {
    context.link_drift.Answered(context.job.policy.drift, context.now);
  }
}

/// What the caller has to do as a result.
struct Effects {
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
  Effects Form(TransitionContext& context);
  /// With a generation in force: begins a change if workers have joined, leave or have drifted, if
  /// the last change made steps slower, or once a lease has passed since a recovery, whose plan was
  /// found in a hurry. Does nothing while a member is absent.
  Effects Consider(TransitionContext& context);
  /// Ends the generation in force: fences it and asks the survivors what they hold.
  Effects Recover(Cause cause, TransitionContext& context);

  Effects OnPlanned(const PlanOutcome& outcome, TransitionContext& context);
  Effects OnPrepared(const std::string& worker,
                     const wire::Prepared& message,
                     TransitionContext& context);
  Effects OnStopped(const std::string& worker,
                    int64_t generation,
                    int64_t applied_step,
                    TransitionContext& context);
  /// True if a Halted of the worker for this fence is awaited; TakeHalted is called then.
  bool AwaitsHalted(const std::string& worker, int64_t fence) const;
  void TakeHalted(const std::string& worker, const wire::Halted& message);
  Effects OnReady(const std::string& worker,
                  const wire::Ready& message,
                  TransitionContext& context);
  /// Handles the loss of a worker during the transition.
  Effects OnLost(const std::string& worker, TransitionContext& context);
  /// Handles overdue replies, and repeats plan requests that are due.
  Effects CheckDeadline(TransitionContext& context);
  /// Leaves Halting, if all survivors have replied and further losses need not be waited for.
  Effects LeaveHalt(TransitionContext& context);
  /// Extends the stage's deadline by `absence`, in which no worker could be heard.
  void Excuse(Duration absence);
  std::optional<Time> NextDeadline(const JobPolicy& policy, const Roster& roster) const;

  /// Resends the stage's command to a worker that came back and has not answered it.
  void Resend(const Worker& worker, TransitionContext& context) const;
  /// Lets a plan with this worker be looked for again.
  void Forget(const std::string& worker) { considered_.erase(worker); }
  /// Marks the predecessor's workers as considered: a plan with them is in force.
  void Restore(const Roster& roster);
  Status Check(const Roster& roster,
               const Generations& generations,
               const StateSources& sources) const;

 private:
  Effects AskForPlan(Planning planning, TransitionContext& context);
  /// Ends a change that was tried before and taken back; the plan in force stays.
  Effects KeepTried(TransitionContext& context);
  /// Ends a change whose plan was weighed; the plan in force stays.
  Effects KeepPlan(TransitionContext& context);
  /// Handles a plan request that failed. `asks_again`: it is repeated later; false: the planner
  /// still works on it, and its answer will be taken.
  Effects RefusePlan(const Status& status, TransitionContext& context, bool asks_again = true);
  Effects SendPrepare(const PlanOutcome& plan, TransitionContext& context);
  void SendStop(TransitionContext& context);
  void TakeNewestCheckpoint(SourceOption& origin, TransitionContext& context);
  void SendStart(NextGeneration next, TransitionContext& context);
  void Go(TransitionContext& context);

  std::optional<Transition> current_;
  int64_t next_request_ = 1;
  /// Workers with which a plan has been looked for since they joined.
  std::set<std::string> considered_;
  /// When a better plan is looked for than the one in force, which was found in a hurry. It needs
  /// no deadline, because members that train send messages all the time.
  std::optional<Time> improve_at_;
};

}  // namespace heddle::elastic
