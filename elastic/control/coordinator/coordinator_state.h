/// \file
/// The coordinator's rooms put together: which of them an event passes through, and in what order.
/// Each room keeps its own fields; here is only what concerns the job's life as a whole.
#pragma once

#include <optional>
#include <string>

#include "elastic/control/coordinator/coordinator.h"
#include "elastic/control/membership/silence.h"
#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

enum class Phase : uint8_t {
  kIdle,      ///< No job.
  kAdopting,  ///< Restarted: waits for the workers of the generation that its predecessor left.
  kActive,    ///< Forms its first generation, or has one in force; a change may be under way.
  kDone,      ///< Ended; workers have been told.
};

// It has a method for each event and for each thing that several rooms do together, more than a
// class should have otherwise: who reads how an event passes finds all of it here.
class Coordinator::State {
 public:
  explicit State(int64_t generation_counter) : generations_(generation_counter) {}
  State(const DurableState& restored, const Job& job, Time now);

  std::vector<CoordinatorAction> Handle(const CoordinatorEvent& event, Time now);
  std::optional<Time> NextDeadline() const;
  wire::JobStatus Describe(Time now) const;
  Status CheckInvariants() const;

 private:
  void DescribePhase(Time now, wire::JobStatus& status) const;
  const JobPolicy& policy() const { return job_.policy; }
  /// A generation is in force.
  bool IsRunning() const { return phase_ == Phase::kActive && generations_.held().has_value(); }
  /// Of a step of the generation in force.
  double StepSeconds() const;
  DurableState Facts(Time now);
  Scene MakeScene(Time now, Outbox& out);

  void On(const Submitted& event, Time now, Outbox& out);
  void On(const Received& event, Time now, Outbox& out);
  void On(const Disconnected& event, Time now, Outbox& out);
  void On(const ProcessExited& event, Time now, Outbox& out);
  void On(const Planned& event, Time now, Outbox& out);
  void On(const CheckpointCommitted& event, Time now, Outbox& out);
  void On(const CheckpointsPruned& event, Time now, Outbox& out);
  void On(const DrainRequested& event, Time now, Outbox& out);
  void On(const EmulateRequested& event, Time now, Outbox& out);
  void On(const CancelRequested& event, Time now, Outbox& out);
  void On(const Ticked& event, Time now, Outbox& out);

  void OnHello(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out);
  void OnMessage(const Worker& worker, const wire::FromWorker& message, Time now, Outbox& out);
  void OnHeartbeat(const Worker& worker, const wire::Heartbeat& message, Time now, Outbox& out);
  void OnProfiled(const Worker& worker, const wire::Profiled& message, Time now, Outbox& out);
  void OnPeerLost(const Worker& worker, const wire::PeerLost& message, Time now, Outbox& out);
  void OnFinished(const Worker& worker, const wire::Finished& message, Time now, Outbox& out);
  void OnValidation(const std::string& name, const wire::Validation& message, Outbox& out);
  void WelcomeWorker(const std::string& name, bool again, Outbox& out);
  void SendGoAgain(const Worker& worker, Outbox& out);

  /// Everything that waits for a time or a condition rather than for one message.
  void Advance(Time now, Outbox& out);
  void FinishAdopting(Time now, Outbox& out);
  void BeginForming(Time now);
  /// Before a worker's word is counted.
  void EndSilence(Time now, Outbox& out);
  void JudgeSilence(Time now, Outbox& out);
  void JudgeAccusations(Time now, Outbox& out);
  void FinishIfDone(Time now, Outbox& out);
  void Consider(Time now, Outbox& out);

  /// Whether what the worker says of a step of `generation` is of the history that counts.
  bool Counts(const std::string& worker, int64_t generation) const;
  /// Whether the job goes on.
  bool TakeRecords(const std::string& worker,
                   const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                   Outbox& out);
  void Apply(const Consequence& consequence, Time now, Outbox& out);
  void Lose(const Loss& loss, Time now, Outbox& out);
  void Dismiss(const std::string& name, const std::string& reason, bool rejoins, Outbox& out);
  void End(const EndJob& end, Outbox& out);

  Phase phase_ = Phase::kIdle;
  Job job_;
  std::optional<EndJob> end_;
  Time started_;
  std::optional<Time> adopt_until_;
  std::optional<Time> promised_tick_;

  Roster roster_;
  Silence silence_;
  Generations generations_;
  Blame blame_;
  LinkSurvey links_;
  Steps steps_;
  Saves saves_;
  StateSources sources_;
  Drift drift_;
  Formation formation_;
  Recoveries recoveries_;
  Transitions transitions_;
};

}  // namespace heddle::elastic
