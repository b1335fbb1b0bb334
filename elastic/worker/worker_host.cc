#include "elastic/worker/worker_host.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/log.h"
#include "elastic/service/job_policy.h"
#include "elastic/worker/measure/local_links.h"
#include "engine/machine/device_choice.h"

namespace heddle::elastic {
namespace {

// Bound of one wait of a loop.
constexpr Duration kSlice = std::chrono::milliseconds(200);

}  // namespace

WorkerHost::WorkerHost(WorkerHostOptions options)
    : options_(std::move(options)),
      training_(std::make_unique<TaskThread>("trainer")),
      lowering_(std::make_unique<TaskThread>("lowering")),
      probing_(std::make_unique<TaskThread>("links")) {}

WorkerHost::~WorkerHost() {
  StopThreads();
}

void WorkerHost::Attach(CoordinatorSession* session, MemberLoop* loop) {
  {
    MutexLock lock(mutex_);
    session_ = session;
    loop_ = loop;
  }
  changed_.NotifyAll();
}

CoordinatorSession& WorkerHost::Session() {
  MutexLock lock(mutex_);
  while (session_ == nullptr) {
    changed_.WaitUntil(mutex_, After(kSlice));
  }
  return *session_;
}

void WorkerHost::Post(MemberEvent event) {
  MemberLoop* loop = nullptr;
  {
    MutexLock lock(mutex_);
    loop = loop_;
  }
  loop->Post(std::move(event));  // Actions, and so posts, come after Session has waited for Attach.
}

void WorkerHost::Perform(const MemberAction& action) {
  std::visit(
      [this](const auto& act) {
        using A = std::decay_t<decltype(act)>;
        if constexpr (std::is_same_v<A, SendToCoordinator>) {
          Session().Send(act.message);
        } else if constexpr (std::is_same_v<A, ApplyJob>) {
          training_->Post([this, act] { Apply(act); });
        } else if constexpr (std::is_same_v<A, MeasureProfile>) {
          training_->Post([this] {
            const Result<std::string> json = owned_trainer_->MeasureProfile();
            Post(ProfileMeasured{.status = json.status(),
                                 .profile_json = json.ok() ? *json : "",
                                 .data = owned_trainer_->data_fingerprint()});
          });
        } else if constexpr (std::is_same_v<A, ProbeLinks>) {
          probing_->Post([this, act] { Post(LinksProbed{.answer = Probe(act.request)}); });
        } else if constexpr (std::is_same_v<A, LowerPlan>) {
          lowering_->Post([this, act] { Lower(act); });
        } else if constexpr (std::is_same_v<A, AbortBelow>) {
          LogInfo("fence generation={} reason=\"{}\"", act.generation, act.reason);
          options_.endpoint->Fence(act.generation);
          if (Trainer* trainer = trainer_.load()) {
            trainer->Fence(act.generation);
          }
        } else if constexpr (std::is_same_v<A, SettleStep>) {
          training_->Post([this, act] { owned_trainer_->Settle(act); });
        } else if constexpr (std::is_same_v<A, AdoptState>) {
          training_->Post([this, act] { owned_trainer_->Adopt(act.generation); });
        } else if constexpr (std::is_same_v<A, DiscardState>) {
          training_->Post([this, act] { owned_trainer_->Discard(act.generation); });
        } else if constexpr (std::is_same_v<A, MoveState>) {
          training_->Post([this, act] { Post(owned_trainer_->Move(act)); });
        } else if constexpr (std::is_same_v<A, RunSteps>) {
          training_->Post([this, act] { Train(act); });
        } else if constexpr (std::is_same_v<A, SaveState>) {
          training_->Post([this, act] { owned_trainer_->Save(act); });
        } else if constexpr (std::is_same_v<A, RequestStop>) {
          if (Trainer* trainer = trainer_.load()) {
            trainer->RequestStop(act.generation);
          }
        } else if constexpr (std::is_same_v<A, SetEmulation>) {
          if (options_.probe != nullptr) {
            options_.probe->SetLinkRate(act.emulation.link_bytes_per_second());
          }
          if (Trainer* trainer = trainer_.load()) {
            trainer->SetEmulation(EmulationOf(act.emulation));
          }
        } else if constexpr (std::is_same_v<A, NoteRefusal>) {
          LogWarning("the coordinator does not take this worker now: {}; it asks again",
                     act.reason);
        } else if constexpr (std::is_same_v<A, ForgetSignals>) {
          LogInfo("what it was told to end for is withdrawn: it stays");
          stays_.store(true);
        } else {
          static_assert(std::is_same_v<A, ExitWorker>);
          Exit(act);
        }
      },
      action);
}

MemberTicked WorkerHost::Tick() const {
  const Trainer* const trainer = trainer_.load();
  if (trainer == nullptr) {
    return {};
  }
  MemberTicked tick{.progress = trainer->progress(), .waits = trainer->waits()};
  tick.moved_bytes = trainer->move().moved();
  tick.bytes_to_move = trainer->move().total();
  if (tick.waits) {
    comm::AwaitedMembers awaited = options_.endpoint->Awaited();
    tick.waits_for = std::move(awaited.names);
    tick.waits_generation = awaited.generation;
  }
  return tick;
}

wire::LinksMeasured WorkerHost::Probe(const wire::MeasureLinks& request) {
  if (request.machine_rates_size() == 2) {
    KeptFiles kept(CacheFolder());
    return AnswerFromKept(kept, request, options_.endpoint_options.config);
  }
  if (options_.probe != nullptr) {
    return options_.probe->Measure(request);
  }
  wire::LinksMeasured none;
  none.set_request(request.request());
  none.set_error("this worker has no endpoint for measurements");
  return none;
}

void WorkerHost::Apply(const ApplyJob& action) {
  Result<runtime::Arithmetic> told = BeginJob(action.welcome);
  Post(JobApplied{.status = told.status(),
                  .arithmetic = told.ok() ? *std::move(told) : runtime::Arithmetic()});
}

Result<runtime::Arithmetic> WorkerHost::BeginJob(const wire::Welcome& welcome) {
  HEDDLE_ASSIGN_OR_RETURN(job::JobConfig job,
                          job::ParseJob(welcome.job_yaml(), "the coordinator's job"));
  const std::string asked =
      options_.device.empty() ? job::DeviceOf(job, welcome.name()) : options_.device;
  HEDDLE_ASSIGN_OR_RETURN(const machine::DeviceName chosen,
                          machine::ChooseDevice(asked, options_.local_rank));
  options_.endpoint_options.config = {.worker = welcome.name(),
                                      .job = welcome.job_id(),
                                      .secret = welcome.secret(),
                                      .transports = job.comm.transports,
                                      .tls = job.comm.tls};
  options_.endpoint->Configure(options_.endpoint_options.config)
      .IgnoreError("the job's reader has checked the names");
  if (options_.probe != nullptr) {
    options_.probe->SetJob(options_.endpoint_options.config);
  }
  ConfigureLog(LogLevel::kInfo, welcome.name());
  const JobPolicy policy = PolicyOf(job);
  HEDDLE_ASSIGN_OR_RETURN(
      owned_trainer_,
      Trainer::Create(
          {.worker = welcome.name(),
           .job = std::move(job),
           .policy = policy,
           .output_folder = welcome.output_folder(),
           .emulation = EmulationOf(welcome.emulation()),
           .endpoint_options = options_.endpoint_options,
           .endpoint = options_.endpoint,
           .registry = options_.registry,
           .post = [this](MemberEvent event) { Post(std::move(event)); },
           .open_device =
               [name = machine::DeviceNameText(chosen)](const runtime::DeviceOptions& options) {
                 return runtime::OpenDevice(name, options);
               }}));
  trainer_.store(owned_trainer_.get());
  const bool told = !options_.device.empty() || asked == machine::DeviceNameText({});
  return told ? runtime::Arithmetic() : owned_trainer_->arithmetic();
}

void WorkerHost::Lower(const LowerPlan& action) {
  const Result<uint64_t> hash = owned_trainer_->Lower(action.generation, action.plan_json);
  Post(PlanLowered{.generation = action.generation,
                   .status = hash.status(),
                   .program_hash = hash.ok() ? *hash : 0});
}

void WorkerHost::Train(const RunSteps& action) {
  RunEnded ended = owned_trainer_->Run(action);
  if (ended.how == RunEnded::How::kFailed) {
    LogWarning("run ended generation={} applied_step={} voted={}: {}", ended.generation,
               ended.applied_step, ended.voted, ended.status.ToString());
  }
  Post(std::move(ended));
}

void WorkerHost::Exit(const ExitWorker& action) {
  LogInfo("exit code={} reason=\"{}\"", action.code, action.reason);
  MutexLock lock(mutex_);
  if (!exit_) {
    exit_ = action;
  }
  changed_.NotifyAll();
}

std::optional<ExitWorker> WorkerHost::WaitForExit(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!exit_ && Now() < deadline) {
    changed_.WaitUntil(mutex_, std::min<Time>(deadline, After(kSlice)));
  }
  return exit_;
}

void WorkerHost::StopThreads() {
  options_.endpoint->Fence(std::numeric_limits<int64_t>::max());
  if (Trainer* trainer = trainer_.load()) {
    trainer->Fence(std::numeric_limits<int64_t>::max());
  }
  if (options_.probe != nullptr) {
    options_.probe->Stop();
  }
  training_.reset();
  lowering_.reset();
  probing_.reset();
  // Ends the threads that save and exchange snapshots, which also post events.
  trainer_.store(nullptr);
  owned_trainer_.reset();
}

}  // namespace heddle::elastic
