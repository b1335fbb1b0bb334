/// \file
/// The coordinator's rooms put together: which of them an event passes through, and in what order.
/// Each room keeps its own fields; here is only what concerns the job's life as a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator.h"
#include "elastic/control/membership/loss_limit.h"
#include "elastic/control/membership/quarantine.h"
#include "elastic/control/membership/silence.h"
#include "elastic/control/suspension/suspension.h"
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
  void DescribeWorkers(wire::JobStatus& status) const;
  const JobPolicy& policy() const { return job_.policy; }
  /// A generation is in force.
  bool IsRunning() const { return phase_ == Phase::kActive && generations_.held().has_value(); }
  /// Its members run steps, and nobody accuses anybody.
  bool StepsRun() const;
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
  void On(const DrainCancelled& event, Time now, Outbox& out);
  void On(const EmulateRequested& event, Time now, Outbox& out);
  void On(const CancelRequested& event, Time now, Outbox& out);
  void On(const SuspendRequested& event, Time now, Outbox& out);
  void On(const Ticked& event, Time now, Outbox& out);

  void OnHello(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out);
  void OnMessage(const Worker& worker, const wire::FromWorker& message, Time now, Outbox& out);
  void OnHeartbeat(const Worker& worker, const wire::Heartbeat& message, Time now, Outbox& out);
  void OnProfiled(const Worker& worker, const wire::Profiled& message, Time now, Outbox& out);
  void OnPeerLost(const Worker& worker, const wire::PeerLost& message, Time now, Outbox& out);
  void OnStopped(const Worker& worker, const wire::Stopped& message, Time now, Outbox& out);
  void OnStateDigests(const std::string& name,
                      const wire::StateDigests& message,
                      Time now,
                      Outbox& out);
  void OnLeaving(const Worker& worker, const wire::Leaving& message, Time now, Outbox& out);
  /// What members saved while they were at odds may have been committed since.
  void RestoreDisagreement(Time now);
  void OnFinished(const Worker& worker, const wire::Finished& message, Time now, Outbox& out);
  void OnValidation(const std::string& name, const wire::Validation& message, Outbox& out);
  /// Why a worker of another job is not taken; none: it is of this one, or of no job yet.
  std::optional<wire::Refused> OtherJob(const wire::Hello& hello) const;
  void WelcomeWorker(const std::string& name, bool again, Outbox& out);
  /// How long a worker that comes is held off; none: it may come, or is needed.
  std::optional<Quarantine::Sentence> HoldOff(const std::string& name, Time now) const;
  void SendGoAgain(const Worker& worker, Outbox& out);

  /// Everything that waits for a time or a condition rather than for one message.
  void Advance(Time now, Outbox& out);
  void FinishAdopting(Time now, Outbox& out);
  void BeginForming(Time now);
  /// Before a worker's word is counted.
  void EndSilence(Time now, Outbox& out);
  void JudgeSilence(Time now, Outbox& out);
  void JudgeAccusations(Time now, Outbox& out);
  void JudgeWaits(Time now, Outbox& out);
  void TakeVerdict(const Blame::Verdict& verdict, Time now, Outbox& out);
  /// What the transition in progress does about answers that are owed.
  void JudgeAnswers(Time now, Outbox& out);
  /// Gives up those that nothing speaks for, but not most workers at once.
  void GiveUp(const std::vector<Loss>& suspected, Time now, Outbox& out);
  /// What the limit decided since it was `before`; if it holds no longer, why.
  void TellHold(const std::optional<LossLimit::Hold>& before,
                const char* why_over,
                Time now,
                Outbox& out);
  void FinishIfDone(Time now, Outbox& out);
  void EndIfNobodyIsLeft(Outbox& out);
  void Consider(Time now, Outbox& out);
  void ConsiderSuspension(Time now, Outbox& out);
  /// Nobody is left to carry the job, and what holds its state, if anything does, can be stopped.
  bool CanSuspend() const;
  void BeginSuspension(Time now, Outbox& out);
  void GiveUpRecovery(const Transition& transition, Source source, Time now, Outbox& out);
  /// `failure`: why the state was not saved; empty: it was, or nothing was to be.
  void EndSuspension(const std::string& failure, Time now, Outbox& out);
  /// Who leaves and is needed by nobody may go.
  void ReleaseLeaving(bool requeue, Time now, Outbox& out);

  /// Whether what the worker says of a step of `generation` is of the history that counts.
  bool Counts(const std::string& worker, int64_t generation) const;
  /// Whether the job goes on.
  bool TakeRecords(const std::string& worker,
                   const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                   Time now,
                   Outbox& out);
  void Recover(Cause cause, Time now, Outbox& out);
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
  bool launched_are_gone_ = false;  ///< All workers that were launched have ended, for good.

  Roster roster_;
  Quarantine quarantine_;
  Silence silence_;
  LossLimit loss_limit_;
  Generations generations_;
  Blame blame_;
  LinkSurvey links_;
  Steps steps_;
  Saves saves_;
  StateSources sources_;
  Agreement agreement_;
  Drift drift_;
  LinkDrift link_drift_;
  Formation formation_;
  Recoveries recoveries_;
  Decisions decisions_;
  Outcomes outcomes_;
  Transitions transitions_;
  Suspension suspension_;
};

}  // namespace heddle::elastic
