/// \file
/// Carries out a Member's actions: a thread for the trainer, one each for lowering and for
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
  comm::Endpoint* endpoint = nullptr;  ///< These outlive the host.
  PairProbe* probe = nullptr;          ///< Null: links are not measured.
  metrics::Registry* registry = nullptr;
};

/// Thread: as MemberHost; WaitForExit from any.
class WorkerHost : public MemberHost {
 public:
  explicit WorkerHost(WorkerHostOptions options);
  ~WorkerHost() override;

  /// Where messages and events go. Both outlive the host's threads (StopThreads).
  void Attach(CoordinatorSession* session, MemberLoop* loop);
  void Perform(const MemberAction& action) override;
  MemberTicked Tick() const override;
  /// How, once the member has decided to end; nothing when `deadline` passed.
  std::optional<ExitWorker> WaitForExit(Deadline deadline);
  /// True once after each time that the member's notices were withdrawn.
  bool TakeStay() { return stays_.exchange(false); }
  /// Ends what runs (its group is aborted) and joins the threads.
  void StopThreads();

 private:
  void Apply(const ApplyJob& action);
  wire::LinksMeasured Probe(const wire::MeasureLinks& request);
  void Lower(const LowerPlan& action);
  void Train(const RunSteps& action);
  void Exit(const ExitWorker& action);
  void Post(MemberEvent event);
  /// Waits for Attach: the session's first callback may come before its constructor has returned.
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
