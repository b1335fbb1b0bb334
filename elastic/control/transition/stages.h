/// \file
/// A transition to the next generation, as the stage that it is in. Each stage has only the data
/// that it needs.
///
///     recover  Halting → Planning → Preparing → Moving
///     form     Planning → Preparing → Moving
///     change   Planning → Preparing → Stopping → Moving
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/control/drift/link_drift.h"
#include "elastic/control/outcome/outcomes.h"
#include "elastic/control/planning.h"
#include "elastic/control/source/state_sources.h"

namespace heddle::elastic {

/// After a loss: the survivors halt and report what they hold.
struct Halting {
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  Time coalesce_until;  ///< Further losses are waited for until then.
  Survey halted;
};

/// A plan is looked for.
struct Planning {
  SourceOption origin;  ///< Where the state comes from. Later steps are rolled back at Go only.
  Survey halted = {};   ///< Recovery: kept in case another survivor is lost.
  bool forced = false;  ///< Change: a worker leaves, so the plan need not pay.
  int64_t request = 0;
  std::set<std::string> asked = {};  ///< Candidates of the request.
  PlannedLinks links = {};           ///< The links that the request names.
  std::optional<Time> deadline = {};
  /// No plan was found, and the job has waited for workers since then.
  std::optional<Time> stuck_since = {};
  /// When the plan is requested again; nullopt: the planner's answer is awaited.
  std::optional<Time> retry_at = {};
};

/// The next generation, known once there is a plan. The same in every Prepare of the generation.
struct NextGeneration {
  SourceOption origin;
  PlanOutcome plan;
  /// The plan's members by rank, then workers that only send state.
  std::vector<std::string> participants;
  wire::Links links;     ///< Measured links between the participants.
  PlannedLinks planned;  ///< The links that the plan was found with.
  /// By rank: the ranks that hold replicas of its shard; empty: no snapshots are kept.
  std::vector<std::vector<int32_t>> holders;
};

/// The participants lower the plan; training goes on meanwhile if a generation is in force.
struct Preparing {
  NextGeneration next;
  std::set<std::string> asked;  ///< Candidates of the plan request.
  std::set<std::string> awaited;
  std::optional<Time> deadline;
};

/// The members of the generation in force stop, all after the same step.
struct Stopping {
  NextGeneration next;
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  std::optional<int64_t> applied_step = {};  ///< The step after which members stopped, if any has.
  std::vector<std::string> members = {};     ///< The members that were asked to stop.
};

/// The participants connect and move state.
struct Moving {
  NextGeneration next;
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  Time since = {};                                ///< Start of the pause in training.
  std::map<std::string, wire::Ready> ready = {};  ///< Replies by worker name.
};

using Stage = std::variant<Halting, Planning, Preparing, Stopping, Moving>;

/// A transition in progress.
struct Transition {
  enum class Kind : uint8_t { kForm, kChange, kRecover };
  Kind kind = Kind::kForm;
  /// kRecover: all generations below it are over. It also numbers the group of the move if workers
  /// leave.
  int64_t fence = 0;
  int64_t generation = 0;                 ///< The number of the next generation.
  bool for_drift = false;                 ///< Change: a worker or a link has drifted.
  std::optional<FormerPlan> former = {};  ///< Change: the former plan that is to be in force again.
  std::optional<Promise> promise = {};    ///< Change: what its steps will be compared with.
  int64_t steps_repeated = 0;             ///< Steps that the job has to run again.
  std::string stuck = {};                 ///< Why the last plan request failed; empty: none did.
  Duration retry_after = {};              ///< From the last failed plan request to the next one.
  Stage stage = Planning();

  /// The data of stage T; null if the transition is in another stage.
  template <typename T>
  T* In() {
    return std::get_if<T>(&stage);
  }
  template <typename T>
  const T* In() const {
    return std::get_if<T>(&stage);
  }
  /// The next generation; null before there is a plan.
  const NextGeneration* next() const;
  /// Workers whose reply to the stage's command is awaited.
  const std::set<std::string>& awaited() const;
  /// When a worker last reported progress, of those that wait for each other in this stage; nullopt
  /// if there are none, or none did.
  std::optional<Time> OthersProgress(const Roster& roster) const;
  /// The reply deadline of an awaited worker: the stage's, or later if the worker reported progress
  /// since, or waits for others that did. nullopt if the stage has no deadline.
  std::optional<Time> DeadlineOf(const Worker& worker,
                                 std::optional<Time> others_progress,
                                 const JobPolicy& policy) const;
  /// The earliest reply deadline. If no reply is awaited: nullopt in Halting, else the stage's
  /// deadline.
  std::optional<Time> Deadline(const Roster& roster, const JobPolicy& policy) const;
  /// True if the worker is a participant of the next generation.
  bool TakesPart(const std::string& worker) const;
  /// True if the worker takes part, its reply is awaited, or it is a candidate of the plan request.
  bool Involves(const std::string& worker) const;
  /// True if no plan was found and the job waits for workers.
  bool IsStuck() const { return In<Planning>() != nullptr && In<Planning>()->stuck_since; }
};

/// The workers that the plan of a transition may count on. A recovery with fewer than `least` also
/// counts on leaving workers, so that the state of the survivors can be saved once its generation
/// is in force.
std::set<std::string> AbleFor(Transition::Kind kind, const Roster& roster, int least);

wire::Halt MakeHalt(const Transition& transition, int64_t known_step);
wire::Prepare MakePrepare(const Transition& transition, const Roster& roster);
wire::Start MakeStart(const Transition& transition,
                      const Roster& roster,
                      const Generations& generations,
                      const Steps& steps,
                      const Saves& saves,
                      const JobPolicy& policy);

}  // namespace heddle::elastic
