/// \file
/// The coordinator's state machine beside its store: the actions of an event are carried out in
/// order, and what follows a Persist only once that is stored. Included by the server only.
///
/// While a state is being written, or cannot be, the machine stands still: events wait, and so does
/// its time where that takes long, so that nobody is late with an answer to what was never asked.
/// The loop that calls this goes on and answers status, signals and refusals. Workers train on
/// meanwhile: their streams stay open, and a step needs no coordinator.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_thread.h"
#include "elastic/control/coordinator/coordinator.h"
#include "elastic/store/store.h"

namespace heddle::elastic {

/// Thread: the loop's alone, but for the store's thread of its own, which posts to the loop.
class DurableMachine {
 public:
  struct Options {
    StateStore* store = nullptr;  ///< Null: nothing is stored, and no action waits.
    /// Runs a call on the loop's thread, soon.
    std::function<void(std::function<void()>)> post;
    /// Any action but Persist.
    std::function<void(const CoordinatorAction&)> perform;
    /// The store has begun to fail or to hang, with the reason; or works again after so long.
    std::function<void(const std::string& reason)> stalled;
    std::function<void(Duration stalled_for)> works_again;
    /// Another coordinator owns the store, or it cannot be made sense of: nothing more will happen.
    std::function<void(const Status&)> lost;
    /// Who may come in is another than before, and stored. May be empty.
    std::function<void(const Admission& admission)> admission_changed = {};
  };
  /// The answer to a submission: once, on the loop's thread.
  using Answer = std::function<void(const Status&)>;

  /// Begins with `machine`, whose facts are `stored`.
  DurableMachine(Options options, Coordinator machine, DurableState stored);

  /// `handled` is called when the machine has seen the event.
  void Handle(CoordinatorEvent event, std::function<void()> handled = {});
  /// Once all that it was told before is handled and stored; never, where its store is lost.
  void WhenStored(std::function<void()> call) { WhenMoving(std::move(call)); }
  /// What time asks for; everything that had come by `taken` was handled before.
  void Tick(Time taken);
  /// When Tick must come at the latest.
  std::optional<Time> NextDeadline() const;

  /// Tries the job on a copy of the machine: it is the machine's only once it is stored, and a
  /// failure leaves everything as it was. `answer` gets the outcome before anything is done for the
  /// job; unless it is `*given_up` by then, when the submission never was.
  void Submit(std::shared_ptr<const Job> job,
              std::shared_ptr<const bool> given_up,
              const Answer& answer);

  /// Changes who may come in: `change` has its turn when the machine's events do, unless
  /// `*given_up` by then. `answer` gets its error, or the store's, and nothing has changed then; OK
  /// once the change is stored, and not before.
  void ChangeAdmission(std::function<Status(Admission&)> change,
                       std::shared_ptr<const bool> given_up,
                       Answer answer);
  const Admission& admission() const { return admission_; }

  /// The machine's state, and beside it that nothing can be stored.
  wire::JobStatus Describe() const;
  /// Why nothing has been stored for a while; empty: it can be.
  const std::string& stall() const { return stall_; }

 private:
  /// What is being written, or waits to be written again.
  struct Write {
    DurableState state;
    bool running = false;
    Time since = {};     ///< That it is tried.
    Time again_at = {};  ///< Not running: when it is tried next.
    Duration backoff = {};
    std::function<void(const Status&)> done;  ///< Empty: it is tried until it succeeds.
  };

  void WhenMoving(std::function<void()> call);
  void Drain();
  void Begin(DurableState state, std::function<void(const Status&)> done);
  void Try();
  void TakeResult(const Status& status);
  void TakeSubmission(const std::shared_ptr<const Job>& job,
                      const std::shared_ptr<const bool>& given_up,
                      const Answer& answer);
  void TakeAdmission(const std::function<Status(Admission&)>& change, const Answer& answer);
  void NoteStall(const std::string& reason);
  void EndWrite(bool stored);
  /// The machine's time at a time of the clock.
  Time MachineTime(Time now) const { return now - behind_; }

  const Options options_;
  Coordinator machine_;
  DurableState stored_;  ///< What the store holds.
  Admission admission_;  ///< Of every state that is stored.
  std::deque<CoordinatorAction> actions_;
  std::deque<std::function<void()>> waiting_;  ///< What the machine is told next.
  std::optional<Write> write_;
  bool draining_ = false;
  bool lost_ = false;
  Duration behind_{};  ///< The clock's time less the machine's.
  std::string stall_;
  std::unique_ptr<TaskThread> writer_;  // Last: it uses the store only.
};

}  // namespace heddle::elastic
