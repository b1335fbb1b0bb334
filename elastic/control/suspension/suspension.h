/// \file
/// All workers leave at once: they stop after one step, the same for all, save what they hold at
/// rest, and only then may go. The job goes on there when workers come.
///
///     Stopping ─ all have stopped ─▶ Saving ─ committed, failed, or no time left ─▶ Outcome
///
/// Whoever loses one of them meanwhile drops the suspension and recovers.
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

/// Thread: one caller at a time. A copy is an independent machine.
class Suspension {
 public:
  struct Outcome {
    std::string failure;  ///< Why the state was not saved; empty: it was.
  };

  bool IsActive() const { return active_.has_value(); }
  /// Steps are still made.
  bool IsStopping() const;

  /// To be called at every step of the machine. `all`: nobody is left who stays.
  void NoteLeaving(bool all, Duration notice, Time now);
  /// All leave, and the notice that they were given is over.
  bool IsLate(Time now) const { return leave_by_ && now >= *leave_by_; }

  /// Tells the members of the generation in force to stop. All of it takes no longer than `notice`,
  /// or than what is left of it where all leave already.
  void Begin(
      const Roster& roster, const Generations& generations, Duration notice, Time now, Outbox& out);
  /// Asks all of them to save once they have stopped. False: they stopped after unlike steps.
  bool TakeStopped(const std::string& worker,
                   int64_t generation,
                   int64_t applied_step,
                   const Roster& roster,
                   const Generations& generations,
                   Outbox& out);
  /// None: it goes on.
  std::optional<Outcome> Look(const Generations& generations, const Saves& saves, Time now) const;
  void Drop() { active_.reset(); }
  /// The job goes on after `step` when workers come.
  void End(int64_t step) {
    active_.reset();
    leave_by_.reset();
    after_ = step;
  }
  /// Where the job goes on that was suspended last; none: none was.
  const std::optional<int64_t>& after() const { return after_; }

  /// Says again what a worker that came back may not have heard.
  void Repeat(const Worker& worker, const Generations& generations, Outbox& out) const;
  std::optional<Time> NextDeadline() const;
  Status Check(const Generations& generations) const;

  /// Everybody is to leave, those that come later too, and why; empty: it was not asked for.
  const std::string& asked() const { return asked_; }
  void Ask(const std::string& reason) { asked_ = reason; }

  /// A notice for all workers reaches them one after the other: nobody is let go, and no change is
  /// begun, before no further one has been asked to leave for `patience`. True: it is waited for.
  /// To be called at every step of the machine, or NextDeadline() stays in the past.
  bool Gathers(const Roster& roster, Duration patience, Time now);

 private:
  struct Stopping {
    std::set<std::string> awaited;
    std::optional<int64_t> applied_step;  ///< As those have it that have stopped.
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
  size_t leaving_ = 0;  ///< How many were asked to leave, at the last look.
  std::optional<Time> gathered_at_;
  std::optional<Time> leave_by_;  ///< Since all leave.
};

}  // namespace heddle::elastic
