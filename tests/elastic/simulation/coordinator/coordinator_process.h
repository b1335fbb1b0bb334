/// \file
/// One process of a coordinator: the shipped machine, the queue before it and what it writes, as
/// elastic/grpc/durable_machine.h has them. Another one may have taken its place: that one owns the
/// store, and this one does not know it yet.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator.h"
#include "tests/elastic/simulation/world/clock.h"

namespace heddle::elastic {

class Cluster;
struct SimWorker;

/// Thread: one caller.
class CoordinatorProcess {
 public:
  /// `life`: counts the processes of coordinators.
  CoordinatorProcess(Cluster& cluster, int64_t life, Coordinator machine, const SimClock& clock);
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  int64_t life() const { return life_; }
  bool ended() const { return ended_; }
  /// Whoever calls it is heard.
  bool answers() const { return !ended_ && !paused_until_; }
  wire::JobStatus Describe() const { return machine_.StatusAt(MachineTime()); }

  /// It is handled once everything before it is, and all that had to be stored for that. Nothing
  /// when it has ended.
  void Tell(const CoordinatorEvent& event);
  /// Nothing that it was at goes on.
  void End() { ended_ = true; }
  void ScheduleTick();

  /// From now on another one owns the store, which holds this. It notices soon, or by its next
  /// write.
  void Fence(const DurableState& stored);
  /// What was durable when another one took its place; none: it owns the store.
  const std::optional<DurableState>& fenced() const { return fenced_; }

  // Faults.
  /// SIGSTOP for a time.
  void Pause(Duration time);
  void JumpClock(Duration time);
  /// It ends before the `actions`-th action from now, or, 0, during its next write that takes time;
  /// it is down for a time, by loss of power where it says so.
  void Crash(int actions, bool power, Duration down) { crash_ = {actions, power, down}; }

 private:
  struct Write {
    DurableState state;
    Time since;
    Duration backoff;
  };
  struct CrashToCome {
    int actions = 0;
    bool power = false;
    Duration down;
  };

  Time MachineTime() const;
  void Drain();
  void Handle(const CoordinatorEvent& event);
  /// Somebody asks that a worker leaves, or stays after all.
  void NoteAsked(const CoordinatorEvent& event);
  /// Whether a worker of the coordinator's status is this process.
  bool Means(const wire::JobStatus::Worker& known, const SimWorker& running) const;
  /// Who asked is told, now that it is stored.
  void Answer();
  void CheckMachine(const CoordinatorEvent& event);
  void CheckDeadline();
  /// As people see it, who may look at any moment.
  void CheckStatus();
  void Perform(const CoordinatorAction& action);
  void Begin(const DurableState& state);
  void Try();
  void EndWrite(const Status& status);
  void TakeRefusal();
  void Continue();
  void CrashNow();
  /// It has noticed that another one owns the store.
  void StandBy();

  Cluster& cluster_;
  const int64_t life_;
  Coordinator machine_;
  SimClock clock_;
  bool ended_ = false;
  std::optional<DurableState> fenced_;
  std::deque<CoordinatorEvent> waiting_;
  std::deque<CoordinatorAction> actions_;
  std::optional<Write> write_;
  bool refused_ = false;              ///< The last one was, for good.
  std::vector<std::string> drained_;  ///< Keys: who asked for it is told when it is stored.
  std::vector<std::string> kept_;     ///< Likewise, that they stay after all.
  Duration behind_{};  ///< The clock's time less the machine's, which stands still in long writes.
  std::optional<Time> tick_at_;
  std::optional<Time> paused_until_;
  std::optional<CrashToCome> crash_;
  int vain_ticks_ = 0;  ///< In a row.
};

}  // namespace heddle::elastic
