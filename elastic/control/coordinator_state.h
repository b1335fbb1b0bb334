/// \file
/// What a Coordinator remembers, and its transitions. Included by the coordinator's sources only:
/// each of them is one part of its behaviour.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/coordinator.h"

namespace heddle::elastic {

enum class Phase : uint8_t {
  kIdle,      ///< No job.
  kAdopting,  ///< Restarted: waits for the workers of the generation that its predecessor left.
  kForming,   ///< Waits for workers, then forms the first generation.
  kRunning,   ///< A generation exists; a change may be under way.
  kDone,      ///< Ended; workers have been told.
};

struct Worker {
  std::string name;
  std::string incarnation;
  std::string host;
  std::string failure_domain;
  int64_t pid = 0;
  std::string data_address;
  std::string metrics_address;
  std::string network;
  std::string probe_address;
  wire::Emulation emulation;

  ConnectionId connection = 0;  ///< 0: none.
  bool welcomed = false;
  bool seen = true;  ///< False: known from the predecessor only.
  Time last_word;
  std::optional<Time> broken_at;  ///< Its stream broke and has not come back.

  std::string profile_json;
  std::optional<Time> profiling_until;
  bool considered = false;  ///< A plan with it has been looked for since it came.
  bool draining = false;
  std::string leave_reason;

  wire::Standing standing = wire::STANDING_IDLE;
  int64_t standing_generation = 0;
  int64_t applied_step = 0;

  double slowdown = 1;          ///< Measured against its profile.
  double planned_slowdown = 1;  ///< What the current plan counts on.
  int64_t window = 0;
  std::deque<double> ratios;  ///< Of the last windows.
};

/// A worker says that another cannot be reached.
struct Accusation {
  std::string accuser;
  std::string accused;  ///< Empty: it cannot say who.
  std::string reason;
  Time at;
};

/// Where the members of a new generation take the state from.
enum class Source : uint8_t {
  kInitial,     ///< A function of the seed.
  kCheckpoint,  ///< On storage.
  kReplicas,    ///< A snapshot in workers' memory.
  kLive,        ///< The tensors of those that hold the generation before.
};

/// A state that a recovery can go on from.
struct SourceOption {
  Source source = Source::kInitial;
  int64_t step = 0;
  int64_t snapshot_generation = 0;        ///< kReplicas: that it was taken in.
  std::vector<std::string> holders = {};  ///< kReplicas, kLive: whose memory it is in, sorted.
  std::optional<wire::Start::Settle> settle = {};  ///< kLive: what some of them are to apply first.
  double bytes = 0;                                ///< About so many are to be moved.
  double seconds = 0;                              ///< Predicted, until the job is where it was.
};

/// A change of generation under way.
struct Transition {
  enum class Kind : uint8_t { kForm, kChange, kRecover };
  enum class Stage : uint8_t { kHalt, kPlan, kPrepare, kStop, kMove };
  Kind kind = Kind::kForm;
  Stage stage = Stage::kPlan;
  int64_t fence =
      0;  ///< kRecover: everything below is over. Also the move's group when some leave.
  int64_t generation = 0;         ///< Of the plan to come.
  std::optional<Time> deadline;   ///< Of the stage.
  Time coalesce_until;            ///< kHalt: not left before.
  std::set<std::string> awaited;  ///< Workers whose answer to the stage's command is owed.
  std::map<std::string, wire::Halted> halted;
  int64_t plan_request = 0;
  std::set<std::string> asked;  ///< Candidates of the request.
  PlanOutcome plan;
  bool forced = false;  ///< kChange: a worker leaves; the gain does not matter.
  bool for_drift = false;
  std::string stuck;  ///< Why no plan was found: waits for workers.
  std::optional<Time> stuck_since;

  // Where the state comes from, as in SourceOption. What the job has reached counts until Go.
  Source source = Source::kInitial;
  int64_t snapshot_generation = 0;
  int64_t applied_step = 0;
  std::optional<wire::Start::Settle> settle;
  std::vector<std::string> holders;
  int64_t steps_repeated = 0;

  std::vector<std::string>
      participants;  ///< The plan's members by rank, then those that only give.
  // The same in every Prepare of this generation.
  wire::Links links;                          ///< Of the participants.
  std::vector<std::vector<int32_t>> keepers;  ///< By rank; empty: no snapshots are kept.
  std::map<std::string, wire::Ready> ready;
};

/// A checkpoint whose parts are coming in.
struct PendingSave {
  std::vector<std::string> writers;  ///< By rank.
  std::map<std::string, std::string> parts;
  double stall_seconds = 0;
  bool committing = false;
  bool failed = false;  ///< Told and given up. It stays here until every writer has reported.
  std::string plan_json;
};

/// Workers that others reach alike, as text that orders them.
using Place = std::string;
/// In this order.
using PlacePair = std::pair<Place, Place>;

/// A measurement of links under way between two workers, the first of the pair's first place.
struct Measurement {
  PlacePair places;
  std::array<std::string, 2> workers;
  std::array<std::optional<wire::LinksMeasured>, 2> answers;
  Time deadline;
};

struct Coordinator::State {
  Phase phase = Phase::kIdle;
  Job job;
  std::optional<EndJob> end;
  std::optional<Time> forming_since;
  bool forming_late = false;  ///< formation_timeout has passed.
  std::optional<Time> adopt_until;
  bool resumed = false;  ///< The job was begun by a predecessor.
  Time started;

  std::map<std::string, Worker> workers;
  std::map<ConnectionId, std::string> connections;
  std::map<std::string, std::string> gone;  ///< Incarnations that were given up, and why.
  int64_t next_worker_number = 1;
  bool list_changed = false;

  int64_t generation_counter = 0;
  std::optional<DurableGeneration> held;  ///< The generation whose state the workers hold.
  std::optional<Transition> transition;
  int64_t next_plan_request = 1;
  std::vector<Accusation> accusations;
  std::optional<Time> recovering_since;
  int recoveries_without_step = 0;

  int64_t known_step = 0;
  int64_t durable_known_step = 0;
  std::optional<Time> persisted_at;
  std::map<int64_t, wire::StepRecord> early;  ///< Records beyond known_step + 1.
  wire::StepRecord last_record;
  double smoothed_step_seconds = 0;
  std::set<std::string> finished;  ///< Members that ran the last step of the held generation.
  std::optional<Time> finished_since;
  std::map<int64_t, double> validated;  ///< Losses by step.
  double validation_loss = 0;
  std::vector<int64_t> checkpoints;
  std::map<std::pair<int64_t, int64_t>, PendingSave> saves;  ///< By (step, generation).
  std::string save_error;  ///< Of the last save that failed and was not made good.
  std::string unsound;     ///< Why the last checkpoint that was left could not be read.

  std::map<int64_t, SnapshotSource> snapshots;  ///< By generation; parts may be in workers' memory.
  double state_bytes = 0;                       ///< Of the whole state's elements; 0: unknown.
  std::map<Source, double> measured_rates;      ///< Bytes a second of the last move by source.

  Duration drift_cooldown{0};
  std::optional<Time> drift_not_before;
  std::optional<Time> last_drift_change;

  int64_t life = 0;           ///< Coordinators of this job before this one.
  bool life_durable = false;  ///< No request for links is sent before.
  int64_t next_measurement = 1;
  /// By pair of places; empty: it failed, and is not tried again until a worker joins there.
  std::map<PlacePair, std::vector<wire::Links::Transport>> measured;
  std::map<int64_t, Measurement> measuring;          ///< By request.
  std::map<Place, std::vector<std::string>> places;  ///< Candidates, as of the last look.
  std::map<std::string, std::vector<Place>> places_of_host;
  /// What is still to be measured of them: each place's partners, itself among them; both sides of
  /// a pair have it.
  std::map<Place, std::vector<Place>> unmeasured;
  bool places_changed = true;         ///< The three above are out of date.
  std::set<std::string> freed_hosts;  ///< Whose `unmeasured` may begin that could not before.
  std::optional<Time> links_until;    ///< A plan waits for links no longer than this.
  bool links_late = false;            ///< It has; until nothing is left to be measured.

  std::optional<Time> promised_tick;
  std::vector<CoordinatorAction> actions;  ///< Of the event being handled.

  // coordinator.cc
  void Handle(const CoordinatorEvent& event, Time now);
  void On(const Submitted& event, Time now);
  void On(const Received& event, Time now);
  void On(const Disconnected& event, Time now);
  void On(const ProcessExited& event, Time now);
  void On(const Planned& event, Time now);
  void On(const CheckpointCommitted& event, Time now);
  void On(const DrainRequested& event, Time now);
  void On(const EmulateRequested& event, Time now);
  void On(const CancelRequested& event, Time now);
  void On(const Ticked& event, Time now);
  void Advance(Time now);
  std::optional<Time> NextDeadline() const;
  void SaveState(Time now);
  void Log(std::string kind, std::vector<std::pair<std::string, LogEvent::Value>> fields);
  template <typename T>
  void SendTo(const Worker& worker, const T& message);
  void End(bool ok, bool bad_input, const std::string& reason, Time now);
  const JobPolicy& policy() const { return job.policy; }

  // coordinator_workers.cc
  void OnHello(ConnectionId connection, const wire::Hello& hello, Time now);
  void Refuse(ConnectionId connection, const std::string& reason, bool permanent);
  void Join(ConnectionId connection, const wire::Hello& hello, Time now);
  void Return(ConnectionId connection, Worker& worker, const wire::Hello& hello, Time now);
  void WelcomeWorker(Worker& worker, bool again);
  void RepeatCommand(Worker& worker, Time now);
  void OnProfiled(Worker& worker, const wire::Profiled& message, Time now);
  void OnHeartbeat(Worker& worker, const wire::Heartbeat& message, Time now);
  void OnLeaving(Worker& worker, const wire::Leaving& message, Time now);
  std::set<std::string> BusyHosts() const;
  void ScheduleProfiles(Time now);
  void CheckLeases(Time now);
  /// By value: the worker whose name and words these are is forgotten here.
  void Lose(std::string name, std::string reason, Time now);
  void Dismiss(const std::string& name, const std::string& reason);
  Worker* Find(const std::string& name);
  bool IsMember(const std::string& name) const;

  // coordinator_blame.cc
  void Accuse(const Worker& accuser,
              const std::string& accused,
              const std::string& reason,
              Time now);
  void OnPeerLost(Worker& worker, const wire::PeerLost& message, Time now);
  void CheckAccusations(Time now);

  // coordinator_links.cc
  Place PlaceOf(const Worker& worker) const;
  /// Sees to what is to be measured; whether a plan need not wait for it (any longer).
  bool LinksSettled(Time now);
  void ForgetOldPlaces();
  void FindUnmeasured();
  void StartMeasuring(Time now);
  const Worker* MeasurerOf(const Place& place, const Worker* other) const;
  void StartMeasurement(const PlacePair& pair, const Worker& first, const Worker& second, Time now);
  wire::MeasureLinks MakeMeasureLinks(int64_t request, int rank) const;
  void OnLinksMeasured(Worker& worker, const wire::LinksMeasured& message);
  void EndMeasurement(int64_t request, const std::string& failure);
  void CheckMeasurements(Time now);
  void ForgetMeasurementsOf(const std::string& worker);
  /// Of these workers, in this order.
  wire::Links LinksOf(const std::vector<std::string>& names) const;

  // coordinator_change.cc
  void FormIfReady(Time now);
  void ConsiderChange(Time now);
  void AskForPlan(Time now);
  void RefuseDrains(const std::string& reason);
  void OnPlanRefused(const Status& status, Time now);
  bool WorthChanging(const PlanOutcome& outcome) const;
  void SendPrepare(Time now);
  void OnPrepared(Worker& worker, const wire::Prepared& message, Time now);
  void SendStop(Time now);
  void OnStopped(Worker& worker, int64_t generation, int64_t applied_step, Time now);
  void SendStart(Time now);
  void OnReady(Worker& worker, const wire::Ready& message, Time now);
  void Go(Time now);
  wire::Prepare MakePrepare() const;
  wire::Start::Replicas MakeReplicas() const;
  wire::Start MakeStart() const;
  void CheckStageDeadline(Time now);

  // coordinator_recovery.cc
  void BeginRecovery(Time now);
  void LostDuringTransition(const std::string& name, Time now);
  void OnHalted(Worker& worker, const wire::Halted& message, Time now);
  void LeaveHaltWhenComplete(Time now);
  void FinishAdopting(Time now);
  void StartForming(Time now);

  // coordinator_source.cc
  std::optional<SourceOption> LiveSource() const;
  std::optional<SourceOption> SnapshotInMemory() const;
  std::optional<SourceOption> StoredSource() const;
  double PredictedSeconds(const SourceOption& option, int64_t newest_step) const;
  void ChooseSource(Time now);
  /// The quickest first.
  std::vector<SourceOption> SourceOptions();
  void RefuseSource(const std::string& reason, Time now);
  void NoteMove(const Transition& move, int64_t bytes);  ///< It is complete.
  std::vector<std::vector<int32_t>> KeepersOf(const PlanOutcome& plan) const;
  void RememberSnapshots();  ///< Of the held generation, from now on.
  void VoidSnapshotsAfter(int64_t step);

  // coordinator_steps.cc
  void OnRecords(const google::protobuf::RepeatedPtrField<wire::StepRecord>& records, Time now);
  void TakeRecord(const wire::StepRecord& record, Time now);
  void RollBackTo(int64_t step);  ///< What later records said is void.
  void GoOnAfter(int64_t step);   ///< The same, and the next record is that of step + 1.
  void OnCheckpointPart(Worker& worker, const wire::CheckpointPart& message, Time now);
  void AbandonSave(const std::pair<int64_t, int64_t>& key);
  void OnValidation(const wire::Validation& message);
  void FinishIfDone(Time now);

  // coordinator_drift.cc
  void CountWindow(Worker& worker, const wire::Heartbeat& message);
  bool NoticeDrift(Time now);
  void DriftChanged(Time now);

  // coordinator_status.cc
  wire::JobStatus StatusAt(Time now) const;
  Status CheckInvariants() const;
};

void WrapMessage(const wire::Welcome& m, wire::ToWorker* out);
void WrapMessage(const wire::Refused& m, wire::ToWorker* out);
void WrapMessage(const wire::Profile& m, wire::ToWorker* out);
void WrapMessage(const wire::Prepare& m, wire::ToWorker* out);
void WrapMessage(const wire::Stop& m, wire::ToWorker* out);
void WrapMessage(const wire::Halt& m, wire::ToWorker* out);
void WrapMessage(const wire::Start& m, wire::ToWorker* out);
void WrapMessage(const wire::Go& m, wire::ToWorker* out);
void WrapMessage(const wire::Emulation& m, wire::ToWorker* out);
void WrapMessage(const wire::Alive& m, wire::ToWorker* out);
void WrapMessage(const wire::Release& m, wire::ToWorker* out);
void WrapMessage(const wire::Abandon& m, wire::ToWorker* out);
void WrapMessage(const wire::MeasureLinks& m, wire::ToWorker* out);

template <typename T>
void Coordinator::State::SendTo(const Worker& worker, const T& message) {
  if (worker.connection == 0) {
    return;
  }
  Send action;
  action.connection = worker.connection;
  WrapMessage(message, &action.message);
  actions.emplace_back(std::move(action));
}

}  // namespace heddle::elastic
