#include "elastic/grpc/server.h"

#include <utility>

#include "base/log.h"
#include "elastic/grpc/server_impl.h"

namespace heddle::elastic {
namespace {

constexpr Duration kLongestWait = std::chrono::seconds(1);

}  // namespace

// ---- Start and stop ----

void CoordinatorServer::Impl::MakeMachine(Coordinator coordinator, DurableState stored) {
  machine_ = std::make_unique<DurableMachine>(
      DurableMachine::Options{
          .store = options_.store,
          .post = [this](std::function<void()> call) { Post(std::move(call)); },
          .perform = [this](const CoordinatorAction& action) { Perform(action); },
          .stalled =
              [this](const std::string& reason) {
                LogError("the coordinator's state cannot be stored, changes wait: {}", reason);
                Log({.kind = "store_stalled", .fields = {{"reason", reason}}});
              },
          .works_again =
              [this](Duration stalled_for) {
                LogWarning("the coordinator's state is stored again after {:.1f} s",
                           Seconds(stalled_for));
                Log({.kind = "store_works", .fields = {{"seconds", Seconds(stalled_for)}}});
              },
          .lost = [this](const heddle::Status& status) { OnStoreLost(status); },
          .admission_changed =
              [this](const Admission& admission) {
                port_->SetAdmission(std::make_shared<const Admission>(admission));
              }},
      std::move(coordinator), std::move(stored));
}

heddle::Status CoordinatorServer::Impl::Restore() {
  MakeMachine(Coordinator(), {});
  if (options_.store == nullptr) {
    return heddle::Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<DurableState> stored, options_.store->Load());
  if (!stored) {
    return heddle::Status::Ok();
  }
  MakeMachine(Coordinator(stored->generation_counter), *stored);
  if (stored->job_id.empty() || stored->finished ||
      (!stored->failed.empty() && !options_.resume_failed)) {
    return heddle::Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(
      Job job, options_.hooks.read_job(stored->job_yaml, stored->output_folder + "/job.yaml",
                                       JobOrigin::kStored));
  job.id = stored->job_id;
  job.secret = stored->secret;
  job.output_folder = stored->output_folder;
  job.checkpoints =
      options_.hooks.find_checkpoints ? options_.hooks.find_checkpoints(job) : stored->checkpoints;
  job_ = std::make_shared<const Job>(job);
  resumed_job_id_ = job.id;
  MakeMachine(Coordinator(*stored, job, Now()), *stored);
  return heddle::Status::Ok();
}

heddle::Status CoordinatorServer::Impl::Start() {
  HEDDLE_RETURN_IF_ERROR(Restore());
  HEDDLE_ASSIGN_OR_RETURN(
      port_, ControlPort::Open({.listen = options_.listen,
                                .credentials = options_.credentials,
                                .refused =
                                    [this](RefusalReason reason) {
                                      if (options_.hooks.refused) {
                                        options_.hooks.refused(RefusalReasonName(reason));
                                      }
                                    },
                                .certificate = options_.hooks.certificate}));
  port_->SetAdmission(std::make_shared<const Admission>(machine_->admission()));
  planner_ = std::make_unique<NewestTask>("planner");
  // Finishes its queue: an ended job may have left a validation loss to be noted.
  committer_ = std::make_unique<TaskThread>("commit", TaskThread::AtEnd::kFinish);
  loop_ = Thread("coordinator", [this] { Run(); });
  return port_->Serve(*this);
}

void CoordinatorServer::Impl::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  if (port_ != nullptr) {
    port_->Close();
  }
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    wake_.NotifyOne();
    changed_.NotifyAll();
  }
  loop_.Join();
  machine_.reset();
  planner_.reset();
  committer_.reset();
}

// ---- The loop ----

void CoordinatorServer::Impl::Post(std::function<void()> call) {
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(call));
  wake_.NotifyOne();
}

bool CoordinatorServer::Impl::IsServing() {
  const MutexLock lock(mutex_);
  return !stopped_ && health_.ok();
}

bool CoordinatorServer::Impl::IsStopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

heddle::Status CoordinatorServer::Impl::Health() {
  const MutexLock lock(mutex_);
  return health_;
}

bool CoordinatorServer::Impl::CallAndWait(const std::function<void()>& call) {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done HEDDLE_GUARDED_BY(mutex) = false;
  };
  // Shared: the loop may run the call after the caller has given up.
  const auto state = std::make_shared<Done>();
  Post([state, call] {
    const MutexLock lock(state->mutex);
    call();
    state->done = true;
    state->changed.NotifyAll();
  });
  const MutexLock lock(state->mutex);
  while (!state->done) {
    state->changed.WaitUntil(state->mutex, After(std::chrono::milliseconds(100)));
    if (!IsServing()) {
      return state->done;
    }
  }
  return true;
}

void CoordinatorServer::Impl::Run() {
  while (true) {
    std::deque<std::function<void()>> calls;
    Time taken;  // Every call posted by then is in `calls`.
    {
      const MutexLock lock(mutex_);
      const Time limit = Now() + kLongestWait;
      const Time until = std::min(machine_->NextDeadline().value_or(limit), limit);
      while (queue_.empty() && !stopped_ && Now() < until) {
        wake_.WaitUntil(mutex_, until);
      }
      if (stopped_) {
        return;
      }
      calls.swap(queue_);
      taken = Now();
    }
    for (const auto& call : calls) {
      call();
    }
    machine_->Tick(taken);
    sessions_.CancelUnnamed(taken);
  }
}

void CoordinatorServer::Impl::OnStoreLost(const heddle::Status& status) {
  LogError("coordinator stops: its state cannot be stored error=\"{}\"", status.ToString());
  const MutexLock lock(mutex_);
  health_ = status.WithContext("the coordinator's state cannot be stored");
  ended_ = EndJob{false, false, health_.message()};
  changed_.NotifyAll();
}

void CoordinatorServer::Impl::JobEnded(const EndJob& end) {
  if (options_.hooks.ended) {
    options_.hooks.ended(end);
  }
  const MutexLock lock(mutex_);
  ended_ = end;
  changed_.NotifyAll();
}

void CoordinatorServer::Impl::Log(const LogEvent& event) {
  if (options_.hooks.log) {
    options_.hooks.log(event);
  }
}

void CoordinatorServer::Impl::Perform(const CoordinatorAction& action) {
  const CoordinatorHooks& hooks = options_.hooks;
  if (const auto* send = std::get_if<Send>(&action)) {
    if (const auto session = sessions_.Find(send->connection)) {
      session->Send(send->message);
    }
  } else if (const auto* close = std::get_if<Close>(&action)) {
    if (const auto session = sessions_.Find(close->connection)) {
      session->Close();
    }
  } else if (const auto* find = std::get_if<FindPlan>(&action)) {
    planner_->Post([this, request = find->request, job = job_](const std::stop_token& stop) {
      PlanOutcome outcome = options_.hooks.plan(*job, request, stop);
      outcome.request_id = request.id;
      Post([this, outcome] { machine_->Handle(Planned{outcome}); });
    });
  } else if (const auto* commit = std::get_if<CommitCheckpoint>(&action)) {
    committer_->Post([this, request = *commit, job = job_] {
      CheckpointCommitted done = options_.hooks.commit(*job, request);
      done.step = request.step;
      done.generation = request.generation;
      Post([this, done] { machine_->Handle(done); });
    });
  } else if (const auto* note = std::get_if<NoteValidation>(&action)) {
    if (hooks.note_validation) {
      committer_->Post([this, request = *note, job = job_] {
        const std::vector<int64_t> pruned = options_.hooks.note_validation(*job, request);
        if (!pruned.empty()) {
          Post([this, pruned] { machine_->Handle(CheckpointsPruned{pruned}); });
        }
      });
    }
  } else if (const auto* abandon = std::get_if<AbandonCheckpoint>(&action)) {
    if (hooks.abandon) {
      committer_->Post(
          [this, request = *abandon, job = job_] { options_.hooks.abandon(*job, request); });
    }
  } else if (const auto* log = std::get_if<WriteLog>(&action)) {
    Log(log->event);
  } else if (const auto* list = std::get_if<ListWorkers>(&action)) {
    if (hooks.list_workers) {
      hooks.list_workers(list->workers);
    }
  } else if (const auto* worker_gone = std::get_if<WorkerGone>(&action)) {
    if (hooks.worker_gone) {
      hooks.worker_gone(*worker_gone);
    }
  } else if (const auto* end = std::get_if<EndJob>(&action)) {
    JobEnded(*end);
  }
}

// ---- The public face ----

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() {
  Stop();
}

Result<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    CoordinatorServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (const heddle::Status status = impl->Start(); !status.ok()) {
    impl->Stop();
    return status;
  }
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

const std::string& CoordinatorServer::address() const {
  return impl_->address();
}
bool CoordinatorServer::resumed() const {
  return !impl_->resumed_job_id().empty();
}
const std::string& CoordinatorServer::resumed_job_id() const {
  return impl_->resumed_job_id();
}

heddle::Status CoordinatorServer::Submit(const std::string& yaml, const std::string& path) {
  return impl_->SubmitJob(yaml, path, nullptr);
}

wire::JobStatus CoordinatorServer::StatusNow() const {
  const auto status = std::make_shared<wire::JobStatus>();
  Impl* impl = impl_.get();
  impl->CallAndWait([impl, status] { *status = impl->machine().Describe(); });
  return *status;
}

void CoordinatorServer::Cancel(const std::string& reason) {
  Impl* impl = impl_.get();
  impl->Post([impl, reason] { impl->machine().Handle(CancelRequested{reason}); });
}

void CoordinatorServer::Suspend(const std::string& reason) {
  Impl* impl = impl_.get();
  impl->Post([impl, reason] { impl->machine().Handle(SuspendRequested{reason}); });
}

void CoordinatorServer::ReportExit(const ProcessExited& exit) {
  Impl* impl = impl_.get();
  impl->Post([impl, exit] { impl->machine().Handle(exit); });
}

heddle::Status CoordinatorServer::Health() const {
  return impl_->Health();
}

std::string CoordinatorServer::Stall() const {
  const auto stall = std::make_shared<std::string>();
  Impl* impl = impl_.get();
  impl->CallAndWait([impl, stall] { *stall = impl->machine().stall(); });
  return *stall;
}

std::optional<EndJob> CoordinatorServer::WaitForEnd(Deadline deadline) {
  return impl_->WaitForEnd(deadline);
}
void CoordinatorServer::Stop() {
  impl_->Stop();
}

}  // namespace heddle::elastic
