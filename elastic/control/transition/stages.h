/// \file
/// A change of generation under way, as the stage that it is in: each has what it needs and no
/// more.
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
#include "elastic/control/outcome/outcomes.h"
#include "elastic/control/planning.h"
#include "elastic/control/source/state_sources.h"

namespace heddle::elastic {

/// After a loss: the survivors stop and say what they hold.
struct Halting {
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  Time coalesce_until;  ///< Further losses are waited for until then.
  Survey halted;
};

/// A plan is looked for.
struct Planning {
  SourceOption origin;  ///< Where the state comes from. What the job has reached counts until Go.
  Survey halted = {};   ///< Recovery: for the case that one more is lost.
  bool forced = false;  ///< Change: a worker leaves; the gain does not matter.
  int64_t request = 0;
  std::set<std::string> asked = {};  ///< Candidates of the request.
  std::optional<Time> deadline = {};
  std::optional<Time> stuck_since = {};  ///< There is none: it waits for workers …
  std::optional<Time> retry_at = {};  ///< … and asks again then. None: the answer is still to come.
};

/// What is known once there is a plan. The same in every Prepare of the generation.
struct NextGeneration {
  SourceOption origin;
  PlanOutcome plan;
  std::vector<std::string>
      participants;   ///< The plan's members by rank, then those that only give.
  wire::Links links;  ///< Of the participants.
  std::vector<std::vector<int32_t>> holders;  ///< By rank; empty: no snapshots are kept.
};

/// The participants lower the plan, all while training goes on where it still does.
struct Preparing {
  NextGeneration next;
  std::set<std::string> asked;  ///< As when the plan was looked for.
  std::set<std::string> awaited;
  std::optional<Time> deadline;
};

/// The members of the generation in force stop after a step, the same for all.
struct Stopping {
  NextGeneration next;
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  std::optional<int64_t> applied_step = {};  ///< As those have it that have stopped.
  std::vector<std::string> members = {};     ///< Who was asked to stop.
};

/// The participants connect and move state.
struct Moving {
  NextGeneration next;
  std::set<std::string> awaited;
  std::optional<Time> deadline;
  Time since = {};  ///< Nobody trains.
  std::map<std::string, wire::Ready> ready = {};
};

using Stage = std::variant<Halting, Planning, Preparing, Stopping, Moving>;

struct Transition {
  enum class Kind : uint8_t { kForm, kChange, kRecover };
  Kind kind = Kind::kForm;
  /// kRecover: everything below is over. Also the move's group when some leave.
  int64_t fence = 0;
  int64_t generation = 0;  ///< Of the plan to come.
  bool for_drift = false;
  std::optional<FormerPlan> former = {};  ///< Change: a plan that was in force is to be it again.
  std::optional<Promise> promise = {};    ///< Change: what its steps are to be compared with.
  int64_t steps_repeated = 0;
  std::string stuck = {};     ///< Why no plan was found, the last time.
  Duration retry_after = {};  ///< Between the last refusal of a plan and the next question.
  Stage stage = Planning();

  /// Null: it is in another stage.
  template <typename T>
  T* In() {
    return std::get_if<T>(&stage);
  }
  template <typename T>
  const T* In() const {
    return std::get_if<T>(&stage);
  }
  /// Null: nobody has a plan yet.
  const NextGeneration* next() const;
  /// Workers whose answer to the stage's command is owed.
  const std::set<std::string>& awaited() const;
  /// When any of those that wait for each other in this stage last did something.
  std::optional<Time> OthersProgress(const Roster& roster) const;
  /// Of a worker whose answer is owed: the stage's, or a later one where it has done something
  /// since, or waits for others that have. None: it is waited for without one.
  std::optional<Time> DeadlineOf(const Worker& worker,
                                 std::optional<Time> others_progress,
                                 const JobPolicy& policy) const;
  /// The first of those of all whose answers are owed.
  std::optional<Time> Deadline(const Roster& roster, const JobPolicy& policy) const;
  bool TakesPart(const std::string& worker) const;
  /// Likewise, or its answer is awaited, or the plan that is looked for may count on it.
  bool Involves(const std::string& worker) const;
  /// It waits for workers, because no plan was found.
  bool IsStuck() const { return In<Planning>() != nullptr && In<Planning>()->stuck_since; }
};

/// Whom a plan may count on. A recovery that would have too few counts on those that leave, too:
/// what the survivors hold is saved as soon as its generation is in force.
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
