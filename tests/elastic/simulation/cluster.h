/// \file
/// A whole job in one thread and virtual time: the shipped coordinator and member machines, a
/// network, a data plane, checkpoints and faults that a seed decides. State is a chain of hashes by
/// parameter, so that a step that was left out, applied twice, or applied with another norm shows
/// in every later state.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "elastic/control/coordinator/coordinator.h"
#include "elastic/member/member.h"

namespace heddle::elastic {

/// Faults of the shell that the checks must find.
enum class Planted : uint8_t {
  kNothing,
  kSkipSettle,        ///< SettleStep does nothing.
  kIgnoreFence,       ///< AbortBelow does nothing.
  kForgetGeneration,  ///< The restarted coordinator reads a counter that is older than what workers
                      ///< learnt.
  kStalePart,         ///< A worker's shard of a snapshot is of the step before.
  kApplySkipped,      ///< SettleStep applies a step that the vote refused.
  kForgetLog,         ///< What was logged is not durable before workers may forget it.
};

struct SimOptions {
  uint64_t seed = 1;
  int workers = 4;
  int64_t steps = 40;
  int faults = 3;
  double fault_window_seconds = 6;
  int hosts = 3;           ///< Workers are on these by turns,
  int domains = 1;         ///< which are in these failure domains; 1: none is known.
  double planner_ms = 80;  ///< The planner takes so long at most, mostly.
  int64_t checkpoint_every = 10;
  int64_t replicate_every = 0;  ///< Steps between snapshots in memory; 0: none.
  int replica_copies = 1;
  /// Bytes and seconds of moves are told, so that a recovery may prefer an older state that is
  /// nearer. Otherwise the newest is to be taken.
  bool tells_moves = false;
  /// Faults are of the ways to the coordinator alone, once all workers train: none of them is given
  /// up, no step is run again, and training does not stop.
  bool control_faults_only = false;
  int64_t refused_every = 0;     ///< The vote refuses each so-many-th step; 0: none.
  bool stop_on_refused = false;  ///< The job is to fail at the first such step.
  Planted planted = Planted::kNothing;
  bool trace = false;
};

struct SimResult {
  std::string error;                  ///< Empty: all invariants held and the job finished.
  std::string faults;                 ///< What was injected, for people.
  double seconds = 0;                 ///< Virtual.
  std::map<std::string, int> probes;  ///< How often the interesting things happened.
  uint64_t digest = 0;                ///< Of all that the coordinator decided, in order.
};

/// One parameter's state: after how many steps, and the hash of all of them.
struct SimParameter {
  int64_t step = 0;
  uint64_t chain = 0;
};
using SimState = std::map<int32_t, SimParameter>;

/// A snapshot in memory, by step and generation.
using SnapshotKey = std::pair<int64_t, int64_t>;

inline constexpr int32_t kSimParameters = 6;
inline constexpr const char* kAbsurdProfile = "absurd";

/// What a plan of the simulated planner says: worker name to its parameters.
using SimPlan = std::vector<std::pair<std::string, std::vector<int32_t>>>;
std::string EncodeSimPlan(int64_t generation, const SimPlan& plan);
SimPlan DecodeSimPlan(const std::string& text);

/// The undisturbed run's figures. `refused_every`: of the options. Of the steps that the vote
/// refuses every other one has a norm that is a number: its loss is none.
bool SimRefused(int64_t step, int64_t refused_every);
double SimNorm(int64_t step, int64_t refused_every);
double SimLoss(int64_t step, int64_t refused_every);
/// Tells also which generation validated.
double SimValidation(int64_t step, int64_t generation);
uint64_t SimChain(int64_t step, int64_t refused_every);

struct SimWorker {
  std::string key;  ///< Of this process; names may be used again by later ones.
  std::unique_ptr<Member> member;
  std::string incarnation;
  std::string host;
  bool alive = true;
  bool exited = false;
  bool absurd = false;                         ///< No plan can be made with its profile.
  std::optional<Time> stopped_until;           ///< SIGSTOP, or a pause of its machine.
  std::deque<std::function<void()>> deferred;  ///< What it would have done meanwhile.
  double slowdown = 1;

  // Control stream.
  ConnectionId connection = 0;
  std::optional<Time> cut_until;  ///< Neither control nor data gets through.
  Time control_frozen_until;  ///< What it and the coordinator say to each other waits until then.
  Time control_cut_until;     ///< Likewise, and is lost; there is no stream.
  Time to_coordinator;        ///< Last arrival scheduled: streams keep their order.
  Time from_coordinator;
  bool reconnecting = false;

  // Trainer.
  int64_t fence = 0;
  SimState held;
  int64_t held_generation = 0;
  SimState staged;
  int64_t staged_generation = 0;
  int64_t staged_step = 0;
  std::map<SnapshotKey, std::map<int32_t, SimState>> parts;  ///< Complete ones, by owner.
  std::optional<MoveState> moving;
  int64_t move_number = 0;
  int64_t moved_generation = 0;  ///< All that it needs of that one's state has come.
  int64_t progress = 0;
  bool waits = false;
  bool stuck = false;  ///< Its trainer does nothing any more; its heartbeats go on.

  struct Run {
    int64_t generation = 0;
    int64_t step = 0;  ///< In flight.
    bool voted = false;
    bool learned = false;
    bool stop = false;        ///< Asked for.
    bool group_stop = false;  ///< Decided by the vote that was learned.
    int64_t number = 0;
    std::vector<std::string> members;  ///< Keys, by rank.
    int rank = 0;
  };
  std::optional<Run> run;
  int64_t kept_vote =
      0;  ///< The step whose complete gradients are kept after a failed run; 0: none.
};

class Cluster {
 public:
  explicit Cluster(const SimOptions& options);
  SimResult Run();

 private:
  friend struct FaultInjector;

  // cluster.cc: time, network, coordinator.
  void At(Time when, std::function<void()> call);
  void After(double low_ms, double high_ms, std::function<void()> call);
  void OnWorker(const std::string& key, Time when, std::function<void(SimWorker&)> call);
  void OnWorkerAfter(const std::string& key,
                     double low_ms,
                     double high_ms,
                     std::function<void(SimWorker&)> call);
  void Fail(const std::string& what);
  void Trace(const std::string& line);
  SimWorker* Worker(const std::string& key);
  SimWorker* Named(const std::string& name);
  std::string Spawn(const std::string& name);
  void Connect(const std::string& key);
  void BreakStream(const std::string& key, bool seen_by_coordinator);
  void Tell(const CoordinatorEvent& event);
  void Perform(const CoordinatorAction& action);
  void ScheduleTick();
  void TellMember(SimWorker& worker, const MemberEvent& event);
  void ScheduleMemberTick(SimWorker& worker);
  void CheckSent(const wire::ToWorker& message);
  void CheckCheckpoints();
  void CheckSaveEnds(int64_t step, int64_t generation, const char* how);
  void TakeLog(const LogEvent& event);
  void TakeEnd(const EndJob& end);
  bool Refused(int64_t step) const { return SimRefused(step, options_.refused_every); }
  uint64_t Chain(int64_t step) const { return SimChain(step, options_.refused_every); }
  void FindPlanFor(const PlanRequest& request);
  void BeginPlan();
  PlanOutcome PlanFor(const PlanRequest& request);
  void Commit(const CommitCheckpoint& commit);
  void StartCoordinator();
  /// `power`: its machine goes down, and what was written there but not made durable with it.
  void StopCoordinator(bool power);
  void Keep(const DurableState& state);
  void Store(const CommitCheckpoint& commit);
  std::vector<int64_t> Prune(int64_t sound);
  std::vector<int64_t> FindCheckpoints() const;
  /// Whether the state after a step that `generation` held is of the history that counts.
  bool Counts(int64_t generation, int64_t step) const;
  bool Unreachable(const SimWorker& worker) const;

  // trainer.cc: the data plane.
  void Perform(SimWorker& worker, const MemberAction& action);
  void BeginProbe(SimWorker& worker, const wire::MeasureLinks& request);
  /// What takes longer than any deadline, now and then: with progress, or without an end.
  void WorkFor(const std::string& key,
               double low_ms,
               double high_ms,
               std::function<void(SimWorker&)> call);
  void WorkUntil(const std::string& key, Time end, std::function<void(SimWorker&)> call);
  void BeginMove(SimWorker& worker, const MoveState& move);
  bool AwaitMove(SimWorker& worker, int64_t number, Time deadline, bool all_have_moved);
  void EndMove(SimWorker& worker, const Status& status, const std::string& peer);
  void BeginRun(SimWorker& worker, const RunSteps& run);
  void Vote(SimWorker& worker);
  void Decide(int64_t generation, int64_t step);
  void CheckFence(const SimWorker& worker);
  void Apply(SimWorker& worker);
  void Advance(SimWorker& worker);
  void FailRun(SimWorker& worker, const Status& status, const std::string& peer);
  void EndRun(SimWorker& worker, RunEnded::How how, const Status& status, const std::string& peer);
  void Save(SimWorker& worker);
  void Validate(SimWorker& worker);
  wire::StepRecord Record(int64_t step, int64_t generation) const;
  void ApplyStep(SimWorker& worker, int64_t step, double norm, bool skip);
  /// As the vote that all have heard decided.
  void ApplyStep(SimWorker& worker, int64_t step);
  void PeerVanished(const std::string& key, bool silent);
  std::string NameOf(const std::string& key);

  // replicas.cc: snapshots in memory.
  void TakeSnapshot(SimWorker& worker);
  void KeepPart(SimWorker& worker, const SnapshotKey& key, int32_t owner, const SimState& part);
  void ForgetParts(SimWorker& worker, int64_t after_step);
  void TellParts(SimWorker& worker);
  std::optional<SimParameter> ReadPart(const SimWorker& worker,
                                       const wire::Start& start,
                                       int32_t parameter);
  void CheckHolders(const wire::Prepare& prepare);
  void CheckSource(const wire::Start& start);
  bool IsVoid(const SnapshotKey& key) const;

  // faults.cc
  void ScheduleFaults();
  void InjectFault();
  std::string DisturbControl();
  void HealAll();
  std::string RandomAlive();
  void Kill(const std::string& key);
  void JoinAndDie();

  struct Entry {
    Time at;
    uint64_t order = 0;
    std::function<void()> call;
    bool operator<(const Entry& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  const SimOptions options_;
  Random random_;
  Time now_;
  uint64_t order_ = 0;
  std::priority_queue<Entry> queue_;
  SimResult result_;
  bool ended_ = false;
  bool healed_ = false;

  Job job_;
  std::optional<Coordinator> coordinator_;
  int64_t coordinator_life_ = 0;
  std::optional<Time> tick_at_;
  DurableState stored_;
  bool stored_any_ = false;
  std::vector<DurableState> older_;   ///< For kForgetGeneration.
  std::optional<PlanRequest> asked_;  ///< The newest; the planner takes it when it is free.
  bool planning_ = false;
  bool planned_for_long_ = false;
  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, std::string> streams_;  ///< Of the living coordinator.
  std::map<std::string, std::unique_ptr<SimWorker>> workers_;
  int next_key_ = 0;
  int64_t next_number_ = 1;

  // What was decided, for the checks.
  int64_t highest_sent_generation_ = 0;
  std::map<int64_t, std::string> plan_of_generation_;
  std::map<int64_t, std::string> links_of_generation_;
  std::map<int64_t, wire::Prepare> prepare_of_generation_;
  std::map<int64_t, int64_t> last_snapshot_;  ///< By generation that began: later ones are void.
  std::map<int64_t, std::string> pair_of_request_;
  int64_t newest_go_ = 0;
  bool check_checkpoints_ = false;
  std::map<int64_t, int64_t> start_of_generation_;
  std::map<int64_t, int64_t> start_sent_;  ///< Steps that Start named, by generation.
  struct Ballot {
    std::set<std::string> voted;
    bool stop = false;
    bool decided = false;
  };
  std::map<std::pair<int64_t, int64_t>, Ballot> ballots_;
  std::set<std::pair<std::string, std::string>> broken_links_;
  std::map<int64_t, int64_t> begun_;  ///< Steps after which generations began.
  std::map<int64_t, LogEvent> final_steps_;
  Time last_applied_;                          ///< When somebody applied a step.
  std::map<int64_t, LogEvent> durable_steps_;  ///< Those that outlive the coordinator's machine.
  std::map<int64_t, int64_t> committed_;       ///< Checkpoints on storage: generations by step.
  std::set<int64_t> damaged_;                  ///< Of these.
  std::map<int64_t, CommitCheckpoint> committing_;
  /// How each save ended, by the coordinator's life, step and generation.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::string> save_ends_;
};

}  // namespace heddle::elastic
