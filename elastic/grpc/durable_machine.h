/// \file
/// The coordinator's state machine with its store: the actions of an event are performed in order,
/// and those after a Persist only once its state is stored. Included by the server only.
///
/// While a state is being written, or cannot be written, the machine is stopped and events wait.
/// A write of a second or more also stops the machine's clock, so that no reply deadline expires
/// for a message that was not sent yet. The loop that calls this goes on and answers status,
/// signals and refusals. Workers go on training: their streams stay open, and a step needs no
/// coordinator.
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

/// The state machine with its store. Thread: the loop's alone; writes of the store run on a thread
/// of their own, which posts their outcome to the loop.
class DurableMachine {
 public:
  struct Options {
    StateStore* store = nullptr;  ///< Null: nothing is stored, and no action waits.
    /// Queues a call for the loop's thread.
    std::function<void(std::function<void()>)> post;
    /// Performs an action other than Persist.
    std::function<void(const CoordinatorAction&)> perform;
    /// Called when the store begins to fail, or a write takes longer than a second.
    std::function<void(const std::string& reason)> stalled;
    /// Called when the store works again after `stalled`, with the duration of the write.
    std::function<void(Duration stalled_for)> works_again;
    /// Called when another coordinator owns the store, or its content is corrupt. The machine
    /// handles nothing afterwards.
    std::function<void(const Status&)> lost;
    /// Called when a changed admission is stored. May be empty.
    std::function<void(const Admission& admission)> admission_changed = {};
  };
  /// Receives the outcome of a change, once, on the loop's thread.
  using Answer = std::function<void(const Status&)>;

  /// Begins with `machine`, whose durable state is `stored`.
  DurableMachine(Options options, Coordinator machine, DurableState stored);

  /// Queues an event. `handled` is called once the machine has handled it, before its actions are
  /// performed.
  void Handle(CoordinatorEvent event, std::function<void()> handled = {});
  /// Calls `call` once every earlier event is handled and its state stored; never if the store is
  /// lost.
  void WhenStored(std::function<void()> call) { WhenMoving(std::move(call)); }
  /// Retries a write and expires the machine's deadlines. Every event received by `taken` must have
  /// been passed to Handle before.
  void Tick(Time taken);
  /// When Tick must be called at the latest; nullopt: only after further events.
  std::optional<Time> NextDeadline() const;

  /// Submits a job. It is tried on a copy of the machine, which replaces the machine once the job
  /// is stored; a failure leaves everything as it was. `answer` gets the outcome before any action
  /// for the job is performed. A submission with `*given_up` set before it is stored is undone.
  void Submit(std::shared_ptr<const Job> job,
              std::shared_ptr<const bool> given_up,
              const Answer& answer);

  /// Changes the admission. `change` is queued behind the machine's events, and dropped if
  /// `*given_up` is set by the time of its turn. `answer` gets OK once the change is stored;
  /// otherwise the error of `change` or of the store, and nothing has changed.
  void ChangeAdmission(std::function<Status(Admission&)> change,
                       std::shared_ptr<const bool> given_up,
                       Answer answer);
  /// The stored admission.
  const Admission& admission() const { return admission_; }

  /// The machine's status; during a stall its reason says so.
  wire::JobStatus Describe() const;
  /// Why the store is stalled; empty while it works.
  const std::string& stall() const { return stall_; }

 private:
  /// A state that is being written, or waits for a retry.
  struct Write {
    DurableState state;
    bool running = false;
    Time since = {};     ///< When the first try began.
    Time again_at = {};  ///< When it is tried again, unless it is running.
    Duration backoff = {};
    std::function<void(const Status&)> done;  ///< Empty: the write is retried until it succeeds.
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
  /// Converts a time of the clock to the machine's time.
  Time MachineTime(Time now) const { return now - behind_; }

  const Options options_;
  Coordinator machine_;
  DurableState stored_;                        ///< What the store holds.
  Admission admission_;                        ///< The admission that every stored state gets.
  std::deque<CoordinatorAction> actions_;      ///< Actions to be performed.
  std::deque<std::function<void()>> waiting_;  ///< Events and changes to be handled.
  std::optional<Write> write_;
  bool draining_ = false;
  bool lost_ = false;
  Duration behind_{};                   ///< By how much the machine's time is behind the clock.
  std::string stall_;                   ///< What stall() returns.
  std::unique_ptr<TaskThread> writer_;  // Last: it uses the store only.
};

}  // namespace heddle::elastic
