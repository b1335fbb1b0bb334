#include "elastic/grpc/durable_machine.h"

#include <algorithm>
#include <utility>

namespace heddle::elastic {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(200);
constexpr Duration kLongestBackoff = std::chrono::seconds(2);
// A write that takes longer is reported as a stall and stops the machine's time. Shorter ones are
// normal for a disk and count as time of the machine, so that measured recoveries include them.
constexpr Duration kSlowWrite = std::chrono::seconds(1);

// True for errors that no retry can mend.
bool IsFinal(const Status& status) {
  return status.code() == StatusCode::kAborted || status.code() == StatusCode::kDataLoss;
}

}  // namespace

DurableMachine::DurableMachine(Options options, Coordinator machine, DurableState stored)
    : options_(std::move(options)),
      machine_(std::move(machine)),
      stored_(std::move(stored)),
      admission_(stored_.admission) {
  if (options_.store != nullptr) {
    writer_ = std::make_unique<TaskThread>("store");
  }
}

// ---- Events and actions ----

void DurableMachine::Handle(CoordinatorEvent event, std::function<void()> handled) {
  WhenMoving([this, event = std::move(event), handled = std::move(handled)] {
    for (CoordinatorAction& action : machine_.Handle(event, MachineTime(Now()))) {
      actions_.push_back(std::move(action));
    }
    if (handled) {
      handled();
    }
  });
}

void DurableMachine::WhenMoving(std::function<void()> call) {
  if (!lost_) {
    waiting_.push_back(std::move(call));
    Drain();
  }
}

void DurableMachine::Drain() {
  if (draining_) {
    return;  // Called from an action; the loop below takes its turn.
  }
  draining_ = true;
  while (!write_ && !lost_) {
    if (!actions_.empty()) {
      CoordinatorAction action = std::move(actions_.front());
      actions_.pop_front();
      if (auto* persist = std::get_if<Persist>(&action)) {
        persist->state.admission = admission_;
        Begin(std::move(persist->state), {});
      } else {
        options_.perform(action);
      }
    } else if (!waiting_.empty()) {
      const std::function<void()> call = std::move(waiting_.front());
      waiting_.pop_front();
      call();
    } else {
      break;
    }
  }
  draining_ = false;
}

void DurableMachine::Tick(Time taken) {
  if (lost_) {
    return;
  }
  if (write_) {
    if (!write_->running && taken >= write_->again_at) {
      Try();
    } else if (write_->running && taken - write_->since >= kSlowWrite) {
      NoteStall(fmt::format("a write takes longer than {} s", Seconds(kSlowWrite)));
    }
    return;
  }
  const std::optional<Time> next = machine_.NextDeadline();
  if (next && MachineTime(taken) >= *next) {
    WhenMoving([this, taken] {
      for (CoordinatorAction& action : machine_.Handle(Ticked(), MachineTime(taken))) {
        actions_.push_back(std::move(action));
      }
    });
  }
}

std::optional<Time> DurableMachine::NextDeadline() const {
  if (lost_) {
    return std::nullopt;
  }
  if (write_) {
    if (!write_->running) {
      return write_->again_at;
    }
    return stall_.empty() ? std::optional<Time>(write_->since + kSlowWrite) : std::nullopt;
  }
  const std::optional<Time> next = machine_.NextDeadline();
  return next ? std::optional<Time>(*next + behind_) : std::nullopt;
}

wire::JobStatus DurableMachine::Describe() const {
  wire::JobStatus status = machine_.StatusAt(MachineTime(Now()));
  if (!stall_.empty()) {
    status.set_reason((status.reason().empty() ? "" : status.reason() + "; ") +
                      "the coordinator's state cannot be stored, changes wait: " + stall_);
  }
  return status;
}

// ---- Writing ----

void DurableMachine::Begin(DurableState state, std::function<void(const Status&)> done) {
  if (options_.store == nullptr) {
    stored_ = std::move(state);
    if (done) {
      done(Status::Ok());
    }
    return;
  }
  write_ = {
      .state = std::move(state), .since = Now(), .backoff = kFirstBackoff, .done = std::move(done)};
  Try();
}

void DurableMachine::Try() {
  write_->running = true;
  writer_->Post([store = options_.store, state = write_->state, post = options_.post, this] {
    const Status status = store->Save(state);
    post([this, status] { TakeResult(status); });
  });
}

void DurableMachine::TakeResult(const Status& status) {
  write_->running = false;
  if (!status.ok() && IsFinal(status)) {
    lost_ = true;
    if (write_->done) {
      write_->done(status);
    }
    return options_.lost(status);
  }
  if (status.ok()) {
    stored_ = write_->state;
  }
  if (const auto done = std::move(write_->done)) {
    EndWrite(status.ok());
    done(status);
  } else if (status.ok()) {
    EndWrite(true);
  } else {
    write_->again_at = After(write_->backoff);
    write_->backoff = std::min(2 * write_->backoff, kLongestBackoff);
    return NoteStall(status.message());
  }
  Drain();
}

void DurableMachine::EndWrite(bool stored) {
  const Duration took = Now() - write_->since;
  write_.reset();
  if (took >= kSlowWrite) {
    behind_ += took;
  }
  if (stored && !std::exchange(stall_, "").empty()) {
    options_.works_again(took);
  }
}

void DurableMachine::NoteStall(const std::string& reason) {
  if (std::exchange(stall_, reason).empty()) {
    options_.stalled(reason);
  }
}

// ---- Admission ----

void DurableMachine::ChangeAdmission(std::function<Status(Admission&)> change,
                                     std::shared_ptr<const bool> given_up,
                                     Answer answer) {
  WhenMoving([this, change = std::move(change), given_up = std::move(given_up),
              answer = std::move(answer)] {
    if (!*given_up) {
      TakeAdmission(change, answer);
    }
  });
}

void DurableMachine::TakeAdmission(const std::function<Status(Admission&)>& change,
                                   const Answer& answer) {
  DurableState state = stored_;
  state.admission = admission_;
  if (const Status status = change(state.admission); !status.ok()) {
    return answer(status);
  }
  const Admission changed = state.admission;
  // A write that failed may have reached the store. The next write corrects it; until then a use of
  // a token may be lost, which admits no worker.
  Begin(std::move(state), [this, changed, answer](const Status& status) {
    if (status.ok()) {
      admission_ = changed;
      if (options_.admission_changed) {
        options_.admission_changed(admission_);
      }
    }
    answer(status);
  });
}

// ---- Submissions ----

void DurableMachine::Submit(std::shared_ptr<const Job> job,
                            std::shared_ptr<const bool> given_up,
                            const Answer& answer) {
  WhenMoving([this, job = std::move(job), given_up = std::move(given_up), answer] {
    if (!*given_up) {
      TakeSubmission(job, given_up, answer);
    }
  });
}

void DurableMachine::TakeSubmission(const std::shared_ptr<const Job>& job,
                                    const std::shared_ptr<const bool>& given_up,
                                    const Answer& answer) {
  const bool idle = machine_.StatusAt(MachineTime(Now())).phase() == "idle";
  // Unless the machine is idle, its job has ended and a new machine takes the next one.
  const auto trial =
      std::make_shared<Coordinator>(idle ? machine_ : Coordinator(stored_.generation_counter));
  Submitted submitted{*job};
  // A submission that was undone may have left a higher number in the store than the machine knows.
  submitted.job.used_generation = std::max(job->used_generation, stored_.generation_counter);
  const auto actions = std::make_shared<std::vector<CoordinatorAction>>(
      trial->Handle(submitted, MachineTime(Now())));
  const auto first = std::find_if(actions->begin(), actions->end(), [](const auto& action) {
    return std::holds_alternative<Persist>(action);
  });
  DurableState undone = stored_;
  undone.generation_counter =
      std::max(undone.generation_counter, std::get<Persist>(*first).state.generation_counter);
  DurableState submitted_state = std::get<Persist>(*first).state;
  submitted_state.admission = admission_;
  Begin(std::move(submitted_state),
        [this, trial, actions, given_up, answer, undone](const Status& status) {
          if (status.ok() && !*given_up) {
            machine_ = std::move(*trial);
            // The Persist among them stores once more what has just been stored.
            for (CoordinatorAction& action : *actions) {
              actions_.push_back(std::move(action));
            }
            return answer(status);
          }
          // A write that failed may have reached the store, and a submission that was given up has.
          // The store is to hold the earlier state again, but for its counter, which never falls.
          actions_.push_back(Persist{undone});
          answer(status.ok() ? UnavailableError("the submission was given up") : status);
        });
}

}  // namespace heddle::elastic
