/// \file
/// What a worker does for a job: holds its share of the state, runs the Programs of its generation,
/// moves state when the plan changes. Its calls are the actions of elastic/member/member.h;
/// elastic/worker/worker.h is the process around it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "checkpoint/save/writer.h"
#include "comm/communicator.h"
#include "elastic/control/policy.h"
#include "elastic/member/member.h"
#include "elastic/worker/replica_store.h"
#include "elastic/worker/replicator.h"
#include "engine/data/dataset.h"
#include "engine/job/job.h"
#include "engine/program/profile.h"
#include "engine/program/program.h"
#include "engine/program/state.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/shared_tensors.h"
#include "metrics/registry.h"

namespace heddle::elastic {

struct TrainerOptions {
  std::string worker;  ///< Own name.
  job::JobConfig job;
  JobPolicy policy;
  std::string output_folder;
  job::Emulation emulation;
  comm::EndpointOptions endpoint_options;  ///< With the job's identity and secret.
  comm::Endpoint* endpoint = nullptr;      ///< These outlive the trainer.
  metrics::Registry* registry = nullptr;
  std::function<void(MemberEvent)> post;  ///< Where events go; thread-safe, never blocks.
};

/// Thread: "any" where said; the rest from one thread.
class Trainer {
 public:
  /// Builds the graphs, opens the data. Errors: kInvalidArgument when the job does not fit this
  /// machine (data missing or different, …).
  static Result<std::unique_ptr<Trainer>> Create(TrainerOptions options);
  ~Trainer();

  /// Measures this worker's operators and its link; anew at every start. JSON of planning's
  /// WorkerMeasurement.
  Result<std::string> MeasureProfile();
  /// Lowers the plan for this worker and keeps it for Move; returns the program's hash. Thread:
  /// any.
  Result<uint64_t> Lower(int64_t generation, const std::string& plan_json);
  void Settle(const SettleStep& settle);
  StateMoved Move(const MoveState& move);
  void Adopt(int64_t generation);
  void Discard(int64_t generation);
  /// Trains; posts StepApplied, Saved and Validated; returns how it ended. A checkpoint's copy of
  /// the state never outlasts it: whoever settles, moves or frees state finds it unread.
  RunEnded Run(const RunSteps& run);
  /// Thread: any.
  void RequestStop(int64_t generation) { stop_generation_.store(generation); }
  /// No save of a generation below keeps Run waiting. Thread: any.
  void Fence(int64_t generation) { writer_->Fence(generation); }
  /// Thread: any.
  void SetEmulation(const job::Emulation& emulation);

 private:
  /// A plan as this worker runs it. Immutable once made.
  struct Lowered {
    program::Plan plan;
    int rank = -1;  ///< -1: not in the plan.
    program::Program training;
    program::Program evaluation;
    double predicted_busy_seconds = 0;  ///< Of a step, by the profile; 0: unknown.
  };
  /// State, and what runs on it, of one generation.
  struct Generation {
    int64_t number = 0;
    int64_t applied_step = 0;
    runtime::VoteFlags flags;                ///< Of all workers, at the last vote.
    std::optional<SnapshotKey> snapshot;     ///< From which the state was moved.
    std::shared_ptr<const Lowered> lowered;  // Outlives the executors below.
    /// What this worker saves, in the order in which a step changes it.
    std::vector<program::StateBox> written;
    std::unique_ptr<runtime::ParameterState> state;
    std::unique_ptr<runtime::SharedTensors> shared;  // Before the group: what is in flight ends.
    std::unique_ptr<comm::Communicator> group;
    std::unique_ptr<Replicator> replicator;  ///< Null: no snapshots are kept in memory.
    std::unique_ptr<runtime::Executor> trainer;
    std::unique_ptr<runtime::Executor> evaluator;
  };

  /// Who holds which boxes of the state that a move begins with, and what goes where.
  struct MovePlan {
    std::vector<program::HeldState> held;
    std::vector<program::Transfer> transfers;
  };
  /// One box on its way, as this worker takes part in it.
  struct Message {
    const program::Transfer* transfer = nullptr;
    uint64_t tag = 0;
    bool receives = false;
    std::span<std::byte> whole;  ///< The box's tensor in a state. Empty: `buffer` is all there is.
    Bytes buffer;                ///< The box, when it is not the whole tensor.
    comm::Work work;
    std::span<std::byte> bytes() { return buffer.empty() ? whole : std::span(buffer); }
  };

  explicit Trainer(TrainerOptions options);
  Status Build();
  std::shared_ptr<const Lowered> FindLowered(int64_t generation);
  Result<std::unique_ptr<Generation>> BuildGeneration(const MoveState& move, StateMoved& moved);
  Result<MovePlan> PlanMove(const wire::Start& start, const program::Plan& next) const;
  Result<std::vector<program::HeldState>> ReplicatedBoxes(
      const wire::Start::Replicas& replicas) const;
  std::vector<int> PeersOf(const Lowered& lowered, const wire::Prepare& prepared) const;
  Status FillFromPeers(const wire::Start& start,
                       const MovePlan& plan,
                       comm::Communicator& group,
                       Generation& next,
                       StateMoved& moved);
  Status PackHeld(const wire::Start& start, Generation& next, std::vector<Message>& messages);
  Status UnpackReplicas(const wire::Start& start,
                        const MovePlan& plan,
                        Generation& next,
                        std::vector<Message>& messages,
                        StateMoved& moved);
  std::vector<program::StateBox> OwnBoxes(const MovePlan& plan, const Lowered& lowered) const;
  Status FillFromCheckpoint(int64_t step, Generation& next, StateMoved& moved);
  Result<std::unique_ptr<comm::Communicator>> Connect(int64_t generation,
                                                      std::vector<comm::GroupMember> members,
                                                      std::vector<int> peers,
                                                      const comm::MeasuredLinks& measured);
  std::vector<program::StateBox> WrittenBoxes(const Lowered& lowered) const;
  checkpoint::StoredBox StoredBoxOf(const program::StateBox& box) const;
  /// `generation.written` and its elements; a checkpoint's moments may be rounded.
  std::vector<checkpoint::BoxView> ViewsOf(const Generation& generation, bool checkpoint) const;
  Result<std::unique_ptr<Replicator>> MakeReplicator(const Generation& generation,
                                                     const wire::Prepare& prepared,
                                                     int64_t staging_bytes);
  void Replicate(Generation& generation);
  void TellReplicas() HEDDLE_EXCLUDES(replicas_mutex_);
  void MakeExecutors(Generation& generation);
  runtime::ExecutorOptions ExecutorFor(Generation& generation, bool training);
  RunEnded RunUntilEnd(const RunSteps& run);
  Status RunStep(Generation& generation, int64_t step, RunEnded& ended);
  bool SaveDue(const Generation& generation);
  void DueAfterStep(Generation& generation, bool save, bool validate);
  void Save(Generation& generation);
  void AwaitSaves(Generation& generation);
  Status Validate(Generation& generation);
  void Report(const wire::StepRecord& record, const Generation& generation);

  const TrainerOptions options_;
  graph::Graph graph_;
  graph::Graph evaluation_graph_;
  std::unique_ptr<data::Dataset> dataset_;
  runtime::DeviceClock clock_;
  std::unique_ptr<checkpoint::Writer> writer_;
  std::unique_ptr<checkpoint::Writer> replica_writer_;  ///< Null: the job keeps no snapshots.
  ReplicaStore replicas_;
  Mutex replicas_mutex_;  ///< So that lists of what is held are told in their order.
  std::atomic<int64_t> memory_bytes_;
  std::atomic<int64_t> stop_generation_ = 0;

  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Lowered>> lowered_ HEDDLE_GUARDED_BY(mutex_);
  program::WorkerProfile profile_ HEDDLE_GUARDED_BY(mutex_);
  comm::Link link_ HEDDLE_GUARDED_BY(mutex_);  ///< Of the own end, as measured with the profile.

  std::unique_ptr<Generation> held_;  // Trainer thread only, like the next two.
  std::unique_ptr<Generation> moved_;
  Status settle_status_;
};

}  // namespace heddle::elastic
