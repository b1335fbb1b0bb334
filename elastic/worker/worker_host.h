/// \file
/// Performs a Member's actions, with one thread each for the trainer, for lowering and for
/// measuring links beside training.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/task_thread.h"
#include "elastic/grpc/coordinator_session.h"
#include "elastic/member/member_loop.h"
#include "elastic/worker/measure/pair_probe.h"
#include "elastic/worker/trainer/trainer.h"

namespace heddle::elastic {

struct WorkerHostOptions {
  comm::EndpointOptions endpoint_options;
  // Endpoint, probe and registry outlive the host.
  comm::Endpoint* endpoint = nullptr;
  PairProbe* probe = nullptr;  ///< Null: links are not measured.
  metrics::Registry* registry = nullptr;
  std::string device;  ///< Name of the device to compute on; empty: the job names it.
  /// How many workers of its launcher on this machine come before it (Launched::local_rank).
  int local_rank = 0;
};

/// A worker's MemberHost. Thread: as MemberHost; WaitForExit and TakeStay from any.
class WorkerHost : public MemberHost {
 public:
  explicit WorkerHost(WorkerHostOptions options);
  ~WorkerHost() override;

  /// Sets where messages and events go; both outlive the host's threads (StopThreads). Perform
  /// waits for this call.
  void Attach(CoordinatorSession* session, MemberLoop* loop);
  void Perform(const MemberAction& action) override;
  MemberTicked Tick() const override;
  /// Waits until the member decides to end, and returns its decision; nullopt at `deadline`.
  std::optional<ExitWorker> WaitForExit(Deadline deadline);
  /// True if the order to end was taken back since the last call.
  bool TakeStay() { return stays_.exchange(false); }
  /// Aborts the groups of running steps and moves, and joins the threads. Idempotent.
  void StopThreads();

 private:
  void Apply(const ApplyJob& action);
  /// Reads the job and makes the trainer. Returns JobApplied::arithmetic.
  Result<runtime::Arithmetic> BeginJob(const wire::Welcome& welcome);
  wire::LinksMeasured Probe(const wire::MeasureLinks& request);
  void Lower(const LowerPlan& action);
  void Train(const RunSteps& action);
  void Exit(const ExitWorker& action);
  void Post(MemberEvent event);
  /// The session. Waits for Attach, since the session's first callback may come before its
  /// constructor has returned.
  CoordinatorSession& Session();

  WorkerHostOptions options_;
  std::atomic<Trainer*> trainer_ = nullptr;  // Set once, by Apply.
  std::atomic<bool> stays_ = false;
  std::unique_ptr<Trainer> owned_trainer_;

  Mutex mutex_;
  CondVar changed_;
  CoordinatorSession* session_ HEDDLE_GUARDED_BY(mutex_) = nullptr;
  MemberLoop* loop_ HEDDLE_GUARDED_BY(mutex_) = nullptr;
  std::optional<ExitWorker> exit_ HEDDLE_GUARDED_BY(mutex_);

  std::unique_ptr<TaskThread> training_;
  std::unique_ptr<TaskThread> lowering_;
  std::unique_ptr<TaskThread> probing_;
};

}  // namespace heddle::elastic
