// What workers and command lines ask of the coordinator.
#include <random>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "elastic/grpc/server_impl.h"

namespace heddle::elastic {
namespace {

constexpr Duration kStreamsCloseWithin = std::chrono::seconds(3);
constexpr Duration kStoredWithin = std::chrono::seconds(5);  // Below the command line's own bound.
constexpr Duration kLookAgain = std::chrono::milliseconds(100);  // For an end of the server.

// 256 bits as text: protobuf strings must be UTF-8.
std::string RandomSecret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 8; ++i) {
    secret += fmt::format("{:08x}", static_cast<uint32_t>(device()));
  }
  return secret;
}

// What no plan can be made with goes on as an error: its worker is given up, and nobody else.
void CheckProfile(const CoordinatorHooks& hooks, wire::FromWorker& message) {
  if (!message.has_profiled() || !hooks.check_profile) {
    return;
  }
  wire::Profiled& profiled = *message.mutable_profiled();
  const Status status = hooks.check_profile(profiled.profile_json());
  if (!status.ok() && profiled.error().empty()) {
    profiled.set_error(status.message());
  }
}

grpc::Status ToGrpc(const Status& status) {
  return status.ok() ? grpc::Status::OK
                     : grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message());
}

}  // namespace

// ---- Streams ----

grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>* CoordinatorServer::Impl::Session(
    grpc::CallbackServerContext* context) {
  return sessions_.Open(
      context,
      [this](ConnectionId from, wire::FromWorker message) {
        CheckProfile(options_.hooks, message);
        Post([this, from, received = std::move(message)] {
          machine_->Handle(Received{from, received}, [this, from] {
            if (const auto reader = sessions_.Find(from)) {
              reader->ReadMore();
            }
          });
        });
      },
      [this](ConnectionId from) { Post([this, from] { machine_->Handle(Disconnected{from}); }); });
}

// ---- Calls ----

// Until submitting_ is false again nobody else can submit: reading a job opens its folder, which a
// refused one must not.
heddle::Status CoordinatorServer::Impl::ReserveJob() {
  const auto refused =
      std::make_shared<heddle::Status>(UnavailableError("the coordinator is going away"));
  CallAndWait([this, refused] {
    const std::string phase = submitting_ ? "submitted" : machine_->Describe().phase();
    if (phase != "idle" && phase != "finished" && phase != "failed") {
      *refused = FailedPreconditionError("a job is there already ({})", phase);
      return;
    }
    *refused = Stalled();
    submitting_ = refused->ok();
  });
  return *refused;
}

// A job that cannot be stored in time was never there: what the caller is told is what counts.
heddle::Status CoordinatorServer::Impl::StoreJob(const std::shared_ptr<const Job>& job) {
  struct Waiting {
    Mutex mutex;
    CondVar changed;
    std::optional<heddle::Status> answer HEDDLE_GUARDED_BY(mutex);
  };
  const auto waiting = std::make_shared<Waiting>();
  const auto given_up = std::make_shared<bool>(false);  // The loop's.
  const auto answer = [this, waiting, given_up, job](const heddle::Status& status) {
    if (*given_up) {
      return;  // Another may be submitting by now.
    }
    if (status.ok()) {
      job_ = job;
      const MutexLock lock(mutex_);
      ended_.reset();
    }
    const MutexLock lock(waiting->mutex);
    waiting->answer = status;
    waiting->changed.NotifyAll();
  };
  Post([this, job, given_up, answer] { machine_->Submit(job, given_up, answer); });
  const Deadline deadline = After(kStoredWithin);
  const auto wait = [&](Deadline until) {
    const MutexLock lock(waiting->mutex);
    while (!waiting->answer && Now() < until) {
      waiting->changed.WaitUntil(waiting->mutex, until);
    }
    return waiting->answer;
  };
  while (Now() < deadline && IsServing() && !IsStopping()) {
    if (const auto stored = wait(std::min(deadline, After(kLookAgain)))) {
      return *stored;
    }
  }
  CallAndWait([this, given_up] {
    *given_up = true;
    submitting_ = false;
  });
  // It may have come at the last moment.
  return wait(Now()).value_or(UnavailableError(
      "the coordinator's state cannot be stored: no answer within {} s", Seconds(kStoredWithin)));
}

heddle::Status CoordinatorServer::Impl::Stalled() const {
  return machine_->stall().empty()
             ? heddle::Status::Ok()
             : UnavailableError("the coordinator's state cannot be stored, changes wait: {}",
                                machine_->stall());
}

heddle::Status CoordinatorServer::Impl::SubmitJob(const std::string& yaml,
                                                  const std::string& path,
                                                  std::string* job_id) {
  HEDDLE_RETURN_IF_ERROR(ReserveJob());
  Result<Job> job = options_.hooks.read_job(yaml, path);
  if (!job.ok()) {
    CallAndWait([this] { submitting_ = false; });
    return job.status();
  }
  job->secret = RandomSecret();
  if (options_.hooks.find_checkpoints) {
    job->checkpoints = options_.hooks.find_checkpoints(*job);
  }
  const auto shared = std::make_shared<const Job>(*std::move(job));
  const heddle::Status stored = StoreJob(shared);
  if (const auto& notify = stored.ok() ? options_.hooks.taken : options_.hooks.not_taken) {
    notify(*shared);
  }
  CallAndWait([this] { submitting_ = false; });  // Only now may another open its folder.
  HEDDLE_RETURN_IF_ERROR(stored);
  if (job_id != nullptr) {
    *job_id = shared->id;
  }
  return heddle::Status::Ok();
}

heddle::Status CoordinatorServer::Impl::DrainOnLoop(const std::string& worker,
                                                    std::vector<std::string>* names) {
  HEDDLE_RETURN_IF_ERROR(Stalled());
  const wire::JobStatus status = machine_->Describe();
  for (const wire::JobStatus::Worker& entry : status.workers()) {
    if (entry.name() == worker || entry.host() == worker) {
      names->push_back(entry.name());
    }
  }
  if (names->empty()) {
    return NotFoundError("no worker or host is named '{}'", worker);
  }
  machine_->Handle(DrainRequested{worker});
  return heddle::Status::Ok();
}

std::optional<EndJob> CoordinatorServer::Impl::WaitForEnd(Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    while (!ended_ && !stopped_ && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (!ended_) {
      return std::nullopt;
    }
  }
  const Deadline closing = std::min(deadline, After(kStreamsCloseWithin));
  while (IsServing() && Now() < closing &&
         !sessions_.WaitUntilNone(std::min(closing, After(kLookAgain)))) {
  }
  const MutexLock lock(mutex_);
  return ended_;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Submit(grpc::CallbackServerContext* context,
                                                          const wire::SubmitRequest* request,
                                                          wire::SubmitReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(
      ToGrpc(SubmitJob(request->job_yaml(), request->job_path(), reply->mutable_job_id())));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Status(grpc::CallbackServerContext* context,
                                                          const wire::StatusRequest* /*request*/,
                                                          wire::JobStatus* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Post([this, reactor, reply] {
    *reply = machine_->Describe();
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Drain(grpc::CallbackServerContext* context,
                                                         const wire::DrainRequest* request,
                                                         wire::DrainReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Post([this, reactor, request, reply] {
    std::vector<std::string> names;
    const heddle::Status status = DrainOnLoop(request->worker(), &names);
    for (const std::string& name : names) {
      reply->add_workers(name);
    }
    reactor->Finish(ToGrpc(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Emulate(grpc::CallbackServerContext* context,
                                                           const wire::EmulateRequest* request,
                                                           wire::EmulateReply* /*reply*/) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Post([this, reactor, request] {
    if (const heddle::Status stalled = Stalled(); !stalled.ok()) {
      return reactor->Finish(ToGrpc(stalled));
    }
    const wire::JobStatus now_status = machine_->Describe();
    for (const wire::JobStatus::Worker& entry : now_status.workers()) {
      if (entry.name() == request->worker()) {
        machine_->Handle(EmulateRequested{request->worker(), request->emulation(),
                                          request->set_speed(), request->set_memory(),
                                          request->set_link()});
        reactor->Finish(grpc::Status::OK);
        return;
      }
    }
    reactor->Finish(ToGrpc(NotFoundError("no worker is named '{}'", request->worker())));
  });
  return reactor;
}

}  // namespace heddle::elastic
