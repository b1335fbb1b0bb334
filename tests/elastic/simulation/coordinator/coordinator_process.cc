#include "tests/elastic/simulation/coordinator/coordinator_process.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/coordinator/action_text.h"

namespace heddle::elastic {
namespace {

// As durable_machine.cc has them.
constexpr Duration kFirstBackoff = std::chrono::milliseconds(200);
constexpr Duration kLongestBackoff = std::chrono::seconds(2);
constexpr Duration kSlowWrite = std::chrono::seconds(1);
// A leader looks so often whether it still is one.
constexpr double kLooksEveryMs = 1500;
// One that goes on after it was stopped does so at once, beside what it was at.
constexpr double kLooksAfterStopMs = 300;

}  // namespace

CoordinatorProcess::CoordinatorProcess(Cluster& cluster,
                                       int64_t life,
                                       Coordinator machine,
                                       const SimClock& clock)
    : cluster_(cluster),
      life_(life),
      machine_(std::move(machine)),
      clock_(clock) {}

Time CoordinatorProcess::MachineTime() const {
  return clock_.At(cluster_.world.now()) - behind_;
}

// ---- Its life ----

void CoordinatorProcess::Fence(const DurableState& stored) {
  fenced_ = stored;
  if (!paused_until_) {
    cluster_.world.After(0, kLooksEveryMs, [this] { StandBy(); });
  }
}

void CoordinatorProcess::StandBy() {
  if (!ended_ && !paused_until_) {
    cluster_.world.Count("a former coordinator stands by");
    cluster_.coordinator.End(*this);
  }
}

void CoordinatorProcess::Pause(Duration time) {
  World& world = cluster_.world;
  const Time until = std::max(world.now() + time, paused_until_.value_or(Time()));
  paused_until_ = until;
  world.At(until, [this, until] {
    if (!ended_ && paused_until_ == until) {
      Continue();
    }
  });
  cluster_.streams.AwaitAnswers(*this);
}

// Its clock went on. What had come meanwhile is read now, or after a look at the clock.
void CoordinatorProcess::Continue() {
  paused_until_.reset();
  World& world = cluster_.world;
  if (refused_) {
    return TakeRefusal();
  }
  if (fenced_) {
    world.Count("a former coordinator goes on");
    world.After(0, kLooksAfterStopMs, [this] { StandBy(); });
  }
  if (world.random().Below(2) == 0) {
    waiting_.emplace_front(std::in_place_type<Ticked>);
  }
  tick_at_.reset();
  Drain();
}

void CoordinatorProcess::JumpClock(Duration time) {
  clock_.Jump(time);
  tick_at_.reset();
  ScheduleTick();
}

void CoordinatorProcess::CrashNow() {
  const CrashToCome crash = *std::exchange(crash_, std::nullopt);
  cluster_.world.Note(fmt::format("the coordinator crashes {}, and is down for {:.3f} s",
                                  crash.actions > 0 ? "between two actions" : "while it stores",
                                  Seconds(crash.down)));
  cluster_.world.Count(crash.actions > 0 ? "crashed in its actions" : "crashed in its store");
  if (fenced_) {
    return cluster_.coordinator.End(*this);
  }
  cluster_.coordinator.StartAfter(crash.down);
  cluster_.coordinator.Stop(crash.power);
}

// ---- Events and actions ----

void CoordinatorProcess::Tell(const CoordinatorEvent& event) {
  if (!ended_) {
    waiting_.push_back(event);
    Drain();
  }
}

void CoordinatorProcess::Drain() {
  while (!ended_ && !write_ && !paused_until_) {
    if (!actions_.empty()) {
      if (crash_ && !cluster_.world.healed() && crash_->actions > 0 && --crash_->actions == 0) {
        crash_->actions = 1;
        return CrashNow();
      }
      const CoordinatorAction action = std::move(actions_.front());
      actions_.pop_front();
      Perform(action);
    } else if (!drained_.empty() || !kept_.empty()) {
      Answer();
    } else if (!waiting_.empty()) {
      const CoordinatorEvent event = std::move(waiting_.front());
      waiting_.pop_front();
      Handle(event);
    } else {
      if (!fenced_) {
        cluster_.ledger.CheckCheckpoints();
      }
      return ScheduleTick();
    }
  }
}

void CoordinatorProcess::Handle(const CoordinatorEvent& event) {
  const auto* received = std::get_if<Received>(&event);
  if (received != nullptr && !fenced_) {
    cluster_.ledger.NoteHeard(received->message);
    cluster_.log.NoteHeard(received->message);
  }
  NoteAsked(event);
  for (CoordinatorAction& action : machine_.Handle(event, MachineTime())) {
    if (cluster_.world.options().record) {
      cluster_.world.AddToDigest(TextOf(action));
    }
    actions_.push_back(std::move(action));
  }
  // Heartbeats change little, and are many.
  if (received == nullptr || !received->message.has_heartbeat()) {
    CheckMachine(event);
  }
}

void CoordinatorProcess::NoteAsked(const CoordinatorEvent& event) {
  const auto* drain = std::get_if<DrainRequested>(&event);
  const auto* cancel = std::get_if<DrainCancelled>(&event);
  if (std::holds_alternative<SuspendRequested>(event)) {
    cluster_.leaves.NoteSuspension();
  }
  if (drain == nullptr && cancel == nullptr) {
    return;
  }
  const std::string& name = drain != nullptr ? drain->worker : cancel->worker;
  const wire::JobStatus known = Describe();
  for (const wire::JobStatus::Worker& worker : known.workers()) {
    if (worker.name() != name || (cancel != nullptr && !worker.may_stay())) {
      continue;  // The answer is that there is none.
    }
    for (const SimWorker* running : cluster_.fleet.Running()) {
      if (!fenced_ && Means(worker, *running)) {
        (drain != nullptr ? drained_ : kept_).push_back(running->key);
        cluster_.leaves.NoteAsked(running->key, /*to_leave=*/drain != nullptr);
      }
    }
  }
}

// Another one may ask for its name. A restarted coordinator knows only what is stored of it.
bool CoordinatorProcess::Means(const wire::JobStatus::Worker& known,
                               const SimWorker& running) const {
  if (known.pid() > 0) {
    return running.pid == known.pid();
  }
  const auto& stored = cluster_.store.state()->workers;
  const auto found = stored.find(known.name());
  return found != stored.end() && found->second.incarnation == running.incarnation;
}

// What was asked of a former coordinator may have been asked otherwise of the leader since.
void CoordinatorProcess::Answer() {
  const std::vector<std::string> drained = std::exchange(drained_, {});
  const std::vector<std::string> kept = std::exchange(kept_, {});
  if (fenced_) {
    return;
  }
  for (const std::string& worker : drained) {
    cluster_.leaves.NoteDrain(worker);
  }
  for (const std::string& worker : kept) {
    cluster_.leaves.NoteStay(worker);
  }
}

void CoordinatorProcess::CheckMachine(const CoordinatorEvent& event) {
  if (const Status status = machine_.CheckInvariants(); !status.ok()) {
    cluster_.world.Fail("coordinator: " + status.ToString());
  }
  if (std::holds_alternative<Ticked>(event)) {
    CheckDeadline();
  }
  if (cluster_.world.Happens(10)) {
    CheckStatus();
  }
  if (fenced_) {
    return;
  }
  if (std::holds_alternative<CheckpointCommitted>(event)) {
    cluster_.ledger.NoteCheckpoints();
  }
  cluster_.faults.LookForPhase();
}

void CoordinatorProcess::CheckStatus() {
  const wire::JobStatus status = Describe();
  const bool all_known = std::ranges::none_of(
      status.workers(), [](const auto& worker) { return worker.standing() == "unknown"; });
  if (status.phase().empty() || status.step() > status.total_steps() || !all_known) {
    cluster_.world.Fail("the status makes no sense: " + status.ShortDebugString());
  }
  if (!fenced_) {
    cluster_.provenance.CheckStatus(status);
  }
}

// It may look once more at what it has just changed.
void CoordinatorProcess::CheckDeadline() {
  constexpr int kMaxInARow = 3;
  const std::optional<Time> next = machine_.NextDeadline();
  vain_ticks_ = next && *next <= MachineTime() ? vain_ticks_ + 1 : 0;
  cluster_.world.Count("ticks");
  if (vain_ticks_ > kMaxInARow) {
    cluster_.world.Fail(fmt::format(
        "a deadline of the coordinator is {:.9f} s ago, and it is woken for it again and again: {}",
        Seconds(MachineTime() - *next), Describe().ShortDebugString()));
  }
}

// Who no longer owns the store writes no log, commits nothing and gives up no save: each of these
// asks the store before.
void CoordinatorProcess::Perform(const CoordinatorAction& action) {
  if (const auto* persist = std::get_if<Persist>(&action)) {
    Begin(persist->state);
  } else if (const auto* send = std::get_if<Send>(&action)) {
    cluster_.ledger.CheckSent(*this, send->message);
    cluster_.streams.ToWorker(send->connection, send->message);
  } else if (const auto* close = std::get_if<Close>(&action)) {
    cluster_.streams.Close(close->connection);
  } else if (const auto* find = std::get_if<FindPlan>(&action)) {
    cluster_.planner.Find(*this, find->request);
  } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
    cluster_.log.NoteSaveEnd(life_, commit->step, commit->generation, "committed");
    cluster_.storage.Commit(*this, *commit);
  } else if (const auto* abandon = std::get_if<AbandonCheckpoint>(&action)) {
    cluster_.log.NoteSaveEnd(life_, abandon->step, abandon->generation, "given up");
  } else if (const auto* log = std::get_if<WriteLog>(&action); log != nullptr && !fenced_) {
    cluster_.log.Take(log->event);
  } else if (const auto* end = std::get_if<EndJob>(&action); end != nullptr && !fenced_) {
    cluster_.log.TakeEnd(*end);
  }
}

// ---- Time ----

void CoordinatorProcess::ScheduleTick() {
  const std::optional<Time> next = machine_.NextDeadline();
  if (!next || ended_ || write_ || paused_until_) {
    return;
  }
  World& world = cluster_.world;
  const Time due =
      std::max(clock_.When(*next + behind_), world.now() + std::chrono::microseconds(1));
  if (tick_at_ && *tick_at_ <= due && *tick_at_ > world.now()) {
    return;
  }
  tick_at_ = due;
  world.At(due + world.Lateness(), [this, due] {
    if (ended_ || tick_at_ != due) {
      return;
    }
    tick_at_.reset();
    if (write_ || paused_until_) {
      return;
    }
    const std::optional<Time> deadline = machine_.NextDeadline();
    if (deadline && *deadline <= MachineTime()) {
      Tell(Ticked());
    } else {
      ScheduleTick();  // It was put off meanwhile.
    }
  });
}

// ---- Storing ----

void CoordinatorProcess::Begin(const DurableState& state) {
  write_ = {state, cluster_.world.now(), kFirstBackoff};
  Try();
  if (!ended_ && write_ && crash_ && !cluster_.world.healed() && crash_->actions == 0) {
    CrashNow();
  }
}

void CoordinatorProcess::Try() {
  cluster_.store.Save(*this, write_->state, [this](const Status& status) {
    if (!ended_) {
      EndWrite(status);
    }
  });
}

void CoordinatorProcess::TakeRefusal() {
  cluster_.world.Count("a former coordinator's write is refused");
  cluster_.coordinator.End(*this);
}

void CoordinatorProcess::EndWrite(const Status& status) {
  World& world = cluster_.world;
  if (status.code() == StatusCode::kAborted) {
    refused_ = true;
    if (!paused_until_) {
      TakeRefusal();
    }
    return;
  }
  Write& write = *write_;
  if (!status.ok()) {
    world.Count("a write failed");
    const Duration backoff = write.backoff;
    write.backoff = std::min(2 * backoff, kLongestBackoff);
    world.At(world.now() + backoff, [this] {
      if (!ended_) {
        Try();
      }
    });
    return;
  }
  const Duration took = world.now() - write.since;
  write_.reset();
  if (took >= kSlowWrite) {
    world.Count("a write took long");
    behind_ += took;
  }
  Drain();
}

}  // namespace heddle::elastic
