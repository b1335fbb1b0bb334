/// \file
/// The composition of the coordinator's components: which of them handle an event, and in what
/// order. Each component keeps its own state; Coordinator::State adds only what concerns the job as
/// a whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/control/coordinator/coordinator.h"
#include "elastic/control/membership/failure_detector.h"
#include "elastic/control/membership/loss_limit.h"
#include "elastic/control/membership/quarantine.h"
#include "elastic/control/suspension/suspension.h"
#include "elastic/control/transition/transitions.h"

namespace heddle::elastic {

enum class JobPhase : uint8_t {
  kIdle,      ///< No job was submitted.
  kAdopting,  ///< The coordinator restarted and waits for the workers of its predecessor.
  kActive,    ///< The job forms a generation, or has one in force; a transition may be in progress.
  kDone,      ///< The job has ended, and the workers have been told.
};

// It has one method for each event and one for each operation that spans several components. These
// are more methods than a class should otherwise have, so that the path of an event is found in one
// place.
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
  void DescribeGuarantee(wire::JobStatus& status) const;
  const JobPolicy& policy() const { return job_.policy; }
  /// True if a generation is in force.
  bool IsRunning() const { return phase_ == JobPhase::kActive && generations_.held().has_value(); }
  /// True if the members of the generation in force run steps and no accusation is pending.
  bool StepsRun() const;
  /// Seconds of a step of the generation in force: the longer of predicted and measured; 0 without
  /// a generation.
  double StepSeconds() const;
  DurableState MakeDurableState(Time now);
  TransitionContext MakeContext(Time now, Outbox& out);

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
  void OnReturn(ConnectionId connection, const wire::Hello& hello, Time now, Outbox& out);
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
  /// After a restart: if the members of the held generation disagreed about their state, voids
  /// snapshots and saves of steps after the last agreed one.
  void RestoreDisagreement(Time now);
  void OnFinished(const Worker& worker, const wire::Finished& message, Time now, Outbox& out);
  void OnValidation(const std::string& name, const wire::Validation& message, Outbox& out);
  /// The refusal of a worker that belongs to another job; nullopt if it belongs to this one or to
  /// none.
  std::optional<wire::Refused> OtherJob(const wire::Hello& hello) const;
  void WelcomeWorker(const std::string& name, bool again, Outbox& out);
  /// The refusal of a worker that would void the guarantee which the job demands, which is logged;
  /// nullopt if it may join.
  std::optional<wire::Refused> Unlike(const std::string& name,
                                      const WorkerIdentity& worker,
                                      Outbox& out);
  /// Sends a submitted job to the workers that have waited for one.
  void WelcomeWaiting(Outbox& out);
  /// How long quarantine holds off a worker that wants to join; nullopt if it may join, or is
  /// needed.
  std::optional<Quarantine::HoldOff> HoldOff(const std::string& name, Time now) const;
  /// Resends Go to a member that is ready and has not received it.
  void SendGoAgain(const Worker& worker, Outbox& out);

  /// Advances everything that waits for a time or a condition rather than for one message.
  void Advance(Time now, Outbox& out);
  void FinishAdopting(Time now, Outbox& out);
  void BeginForming(Time now);
  /// Ends the silence of all workers, if there is one. Called before the roster counts a message.
  void EndSilence(Time now, Outbox& out);
  void JudgeSilence(Time now, Outbox& out);
  void JudgeAccusations(Time now, Outbox& out);
  void JudgeWaits(Time now, Outbox& out);
  void TakeVerdict(const Blame::Verdict& verdict, Time now, Outbox& out);
  /// Checks the reply deadlines of the transition in progress.
  void JudgeAnswers(Time now, Outbox& out);
  /// Gives up those of `suspected` that the loss limit admits.
  void GiveUp(const std::vector<Loss>& suspected, Time now, Outbox& out);
  /// Logs that the loss limit began to hold losses, or ended doing so, since it was `before`.
  /// `why_over`: the reason for the end.
  void TellHold(const std::optional<LossLimit::Hold>& before,
                const char* why_over,
                Time now,
                Outbox& out);
  void FinishIfDone(Time now, Outbox& out);
  void EndIfNobodyIsLeft(Outbox& out);
  void Consider(Time now, Outbox& out);
  void ConsiderSuspension(Time now, Outbox& out);
  /// True if all workers leave and the generation in force can be stopped after a step.
  bool CanSuspend() const;
  void BeginSuspension(Time now, Outbox& out);
  void GiveUpRecovery(const Transition& transition, Source source, Time now, Outbox& out);
  /// Ends the suspension; the job forms again when workers join. `failure`: why the state was not
  /// saved; empty if it was, or if nothing had to be.
  void EndSuspension(const std::string& failure, Time now, Outbox& out);
  /// Releases the leaving workers that are not members of a generation. `requeue`: the job waits
  /// for other workers.
  void ReleaseLeaving(bool requeue, Time now, Outbox& out);

  /// True if the worker is a member of the generation in force and its report is of that
  /// generation.
  bool Counts(const std::string& worker, int64_t generation) const;
  /// Takes the records that count. False if the job has ended, or ends because of them.
  bool TakeRecords(const std::string& worker,
                   const google::protobuf::RepeatedPtrField<wire::StepRecord>& records,
                   Time now,
                   Outbox& out);
  void Recover(Cause cause, Time now, Outbox& out);
  void Apply(const Effects& effects, Time now, Outbox& out);
  void Lose(const Loss& loss, Time now, Outbox& out);
  void Dismiss(const std::string& name, const std::string& reason, bool rejoins, Outbox& out);
  void End(const EndJob& end, Outbox& out);

  JobPhase phase_ = JobPhase::kIdle;
  Job job_;
  std::optional<EndJob> end_;
  Time started_;
  std::optional<Time> adopt_until_;
  std::optional<Time> promised_tick_;
  bool launched_are_gone_ = false;  ///< All launched processes have ended; none will be restarted.
  bool refused_unlike_ = false;     ///< Unlike has refused a worker before a generation began.

  Roster roster_;
  Quarantine quarantine_;
  FailureDetector failure_detector_;
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
  Lineage lineage_;
  Transitions transitions_;
  Suspension suspension_;
};

}  // namespace heddle::elastic
