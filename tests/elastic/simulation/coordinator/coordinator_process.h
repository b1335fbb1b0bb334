/// \file
/// One process of a coordinator: the shipped machine, its queue of events and what it writes, as in
/// elastic/grpc/durable_machine.h. Another process may have taken its place: the other one owns the
/// store then, and this one may not know it yet.
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

/// One process of a coordinator. Thread: one caller.
class CoordinatorProcess {
 public:
  /// `life`: counts the processes of coordinators.
  CoordinatorProcess(Cluster& cluster, int64_t life, Coordinator machine, const SimClock& clock);
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  int64_t life() const { return life_; }
  bool ended() const { return ended_; }
  /// Whether the process answers calls: it neither ended nor is paused.
  bool answers() const { return !ended_ && !paused_until_; }
  wire::JobStatus Describe() const { return machine_.StatusAt(MachineTime()); }

  /// Queues an event. It is handled once all events before it are handled and what they had to
  /// store is stored. Does nothing once the process has ended.
  void Tell(const CoordinatorEvent& event);
  /// Ends the process; nothing of its work in progress continues.
  void End() { ended_ = true; }
  void ScheduleTick();

  /// From now on another process owns the store, which holds `stored`. This process notices soon,
  /// or by its next write.
  void Fence(const DurableState& stored);
  /// The durable state when another process took this one's place; nullopt: this one owns the
  /// store.
  const std::optional<DurableState>& fenced() const { return fenced_; }

  // Faults.
  /// Stops the process for `time`, as SIGSTOP does.
  void Pause(Duration time);
  void JumpClock(Duration time);
  /// The process ends before the `actions`-th action from now, or, where `actions` is 0, during its
  /// next write that takes time. It stays down for `down`. `power`: its machine loses power.
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
  /// Notes a request of an operator that a worker leave, or stay after all; does nothing for other
  /// events.
  void NoteAsked(const CoordinatorEvent& event);
  /// Whether a worker of the coordinator's status is the process `running`.
  bool Means(const wire::JobStatus::Worker& known, const SimWorker& running) const;
  /// Answers the operators' requests, once they are stored.
  void Answer();
  void CheckMachine(const CoordinatorEvent& event);
  void CheckDeadline();
  /// Checks the coordinator's status, which an operator may read at any moment.
  void CheckStatus();
  void Perform(const CoordinatorAction& action);
  void Begin(const DurableState& state);
  void Try();
  void EndWrite(const Status& status);
  void TakeRefusal();
  void Continue();
  void CrashNow();
  /// This process noticed that another one owns the store, and becomes a standby.
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
  bool refused_ = false;              ///< The last write was refused, for good.
  std::vector<std::string> drained_;  ///< Keys of workers asked to leave; answered once stored.
  std::vector<std::string> kept_;     ///< Keys of workers asked to stay; answered once stored.
  Duration behind_{};  ///< The clock's time less the machine's, which stands still in long writes.
  std::optional<Time> tick_at_;
  std::optional<Time> paused_until_;
  std::optional<CrashToCome> crash_;
  int vain_ticks_ = 0;  ///< Consecutive ticks whose deadline stayed past.
};

}  // namespace heddle::elastic
