/// \file
/// Suspension of a job that all workers leave: they stop after the same step, save the state that
/// they hold, and are released only then. The job continues from there when workers join.
///
///     Stopping ─ all have stopped ─▶ Saving ─ committed, failed, or no time left ─▶ Outcome
///
/// If one of them is lost meanwhile, the suspension is dropped and the job recovers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/control/membership/generations.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/outbox.h"
#include "elastic/control/saves/saves.h"

namespace heddle::elastic {

/// The suspension in progress, if there is one. Thread: one caller at a time. A copy is an
/// independent machine.
class Suspension {
 public:
  struct Outcome {
    std::string failure;  ///< Why the state was not saved; empty: it was.
  };

  bool IsActive() const { return active_.has_value(); }
  /// True while the members still run steps.
  bool IsStopping() const;

  /// Called whenever the state machine advances. `all`: all workers leave.
  void NoteLeaving(bool all, Duration notice, Time now);
  /// True if all workers leave and their notice is over.
  bool IsLate(Time now) const { return leave_by_ && now >= *leave_by_; }

  /// Tells the members of the generation in force to stop. The suspension takes no longer than
  /// `notice`, or than what is left of it since all workers leave.
  void Begin(
      const Roster& roster, const Generations& generations, Duration notice, Time now, Outbox& out);
  /// Takes a member's Stopped, and tells all members to save once all have stopped. Returns false
  /// if members stopped after different steps.
  bool TakeStopped(const std::string& worker,
                   int64_t generation,
                   int64_t applied_step,
                   const Roster& roster,
                   const Generations& generations,
                   Outbox& out);
  /// How the suspension ended; nullopt while it goes on.
  std::optional<Outcome> Look(const Generations& generations, const Saves& saves, Time now) const;
  void Drop() { active_.reset(); }
  /// Ends the suspension: the job continues after `step` when workers join.
  void End(int64_t step) {
    active_.reset();
    leave_by_.reset();
    after_ = step;
  }
  /// The step after which the job continues since the last suspension; nullopt: there was none.
  const std::optional<int64_t>& after() const { return after_; }

  /// Resends Stop or Save to a member that came back and may not have received it.
  void Resend(const Worker& worker, const Generations& generations, Outbox& out) const;
  std::optional<Time> NextDeadline() const;
  Status Check(const Generations& generations) const;

  /// Why all workers are to leave, also those that join later; empty: that was not requested.
  const std::string& asked() const { return asked_; }
  void Ask(const std::string& reason) { asked_ = reason; }

  /// True while further drains are waited for: a notice for all workers reaches them one after the
  /// other, so no worker is released and no change begins until none has been asked to leave for
  /// `patience`. Must be called whenever the state machine advances; otherwise NextDeadline() stays
  /// in the past.
  bool Gathers(const Roster& roster, Duration patience, Time now);

 private:
  struct Stopping {
    std::set<std::string> awaited;
    std::optional<int64_t> applied_step;  ///< The step after which members stopped, if any has.
  };
  struct Saving {
    int64_t step = 0;
  };
  struct Active {
    Time deadline;
    std::variant<Stopping, Saving> stage;
  };

  std::optional<Active> active_;
  std::optional<int64_t> after_;
  std::string asked_;
  size_t leaving_ = 0;               ///< How many workers were leaving at the last Gathers.
  std::optional<Time> gathered_at_;  ///< Until when further drains are waited for.
  std::optional<Time> leave_by_;     ///< The end of the notice; set while all workers leave.
};

}  // namespace heddle::elastic
