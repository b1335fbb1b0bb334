// The coordinator's calls, of workers and of command lines.
#include <random>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "elastic/grpc/connection/access.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/server_impl.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

constexpr Duration kLookAgain = std::chrono::milliseconds(100);  // Polls for the server's end.

// Returns 256 random bits in hexadecimal, since protobuf strings must be UTF-8.
std::string RandomSecret() {
  std::random_device device;
  std::string secret;
  for (int i = 0; i < 8; ++i) {
    secret += fmt::format("{:08x}", static_cast<uint32_t>(device()));
  }
  return secret;
}

heddle::Status NotStored() {
  return UnavailableError("the coordinator's state cannot be stored: no answer within {} s",
                          Seconds(kStoredWithin));
}

// Turns a profile that no plan can be made with into the worker's error, so that only this worker
// is given up.
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

}  // namespace

// ---- Streams ----

grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>* CoordinatorServer::Impl::Session(
    grpc::CallbackServerContext* context) {
  const std::optional<std::string> worker = port_->WorkerOf(*context);
  return sessions_.Open(
      context, worker.value_or(""),
      [this, context, worker](ConnectionId from, wire::FromWorker message) {
        if (const heddle::Status named = BindName(worker, message); !named.ok()) {
          port_->NoteRefusal(RefusalReason::kName, named.message());
          if (const auto session = sessions_.Find(from)) {
            session->Refuse(named);
          }
          return;
        }
        if (message.has_hello()) {
          port_->NoteAuthorised(*context);
        }
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

grpc::ServerUnaryReactor* CoordinatorServer::Impl::MarkAuthorised(
    grpc::CallbackServerContext* context) {
  port_->NoteAuthorised(*context);
  return context->DefaultReactor();
}

// Reserves the server for one submission, until submitting_ is false again: reading a job opens its
// folder, which a refused submission must not do.
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

std::optional<heddle::Status> CoordinatorServer::Impl::WaitFor(StoredAnswer& answer) {
  const Deadline deadline = After(kStoredWithin);
  while (Now() < deadline && IsServing() && !IsStopping()) {
    if (auto stored = answer.Wait(std::min(deadline, After(kLookAgain)))) {
      return stored;
    }
  }
  return answer.Wait(Now());
}

heddle::Status CoordinatorServer::Impl::AwaitStored(
    const std::function<void(std::shared_ptr<const bool> given_up,
                             const DurableMachine::Answer& answer)>& begin,
    const std::function<void()>& taken) {
  const auto waiting = std::make_shared<StoredAnswer>();
  const auto given_up = std::make_shared<bool>(false);  // Used on the loop only.
  const auto answer = [waiting, given_up, taken](const heddle::Status& status) {
    if (*given_up) {
      return;  // Another submission may have begun by now.
    }
    if (status.ok()) {
      taken();
    }
    waiting->Give(status);
  };
  Post([begin, given_up, answer] { begin(given_up, answer); });
  if (const auto stored = WaitFor(*waiting)) {
    return *stored;
  }
  CallAndWait([given_up] { *given_up = true; });
  // The answer may have arrived before given_up was set.
  return waiting->Wait(Now()).value_or(NotStored());
}

// A job that is not stored in time is undone, so that the error that the caller gets is true.
heddle::Status CoordinatorServer::Impl::StoreJob(const std::shared_ptr<const Job>& job) {
  return AwaitStored(
      [this, job](std::shared_ptr<const bool> given_up, const DurableMachine::Answer& answer) {
        machine_->Submit(job, std::move(given_up), answer);
      },
      [this, job] {
        job_ = job;
        const MutexLock lock(mutex_);
        ended_.reset();
      });
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
  Result<Job> job = options_.hooks.read_job(yaml, path, JobOrigin::kSubmitted);
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
  CallAndWait([this] { submitting_ = false; });  // Only now may another job open its folder.
  HEDDLE_RETURN_IF_ERROR(stored);
  if (job_id != nullptr) {
    *job_id = shared->id;
  }
  return heddle::Status::Ok();
}

// Returns only once the change is stored: the answer, that a worker leaves or stays, has to hold
// after a restart of the coordinator.
heddle::Status CoordinatorServer::Impl::DrainWorkers(const wire::DrainRequest& request,
                                                     std::vector<std::string>* names) {
  const auto waiting = std::make_shared<StoredAnswer>();
  // Used on the loop only, until the answer is given.
  const auto drained = std::make_shared<std::vector<std::string>>();
  Post([this, request, waiting, drained] {
    const heddle::Status status = DrainOnLoop(request, drained.get());
    if (!status.ok()) {
      return waiting->Give(status);
    }
    machine_->WhenStored([waiting] { waiting->Give(heddle::Status::Ok()); });
  });
  const std::optional<heddle::Status> stored = WaitFor(*waiting);
  if (!stored) {
    return NotStored();
  }
  *names = *drained;
  return *stored;
}

heddle::Status CoordinatorServer::Impl::DrainOnLoop(const wire::DrainRequest& request,
                                                    std::vector<std::string>* names) {
  HEDDLE_RETURN_IF_ERROR(Stalled());
  const std::string& worker = request.worker();
  const wire::JobStatus status = machine_->Describe();
  bool any = false;
  bool all_leave = false;  // The whole run ends, and its workers leave with it.
  for (const wire::JobStatus::Worker& entry : status.workers()) {
    if (entry.name() == worker || entry.host() == worker) {
      any = true;
      all_leave = all_leave || (entry.standing() == "draining" && !entry.may_stay());
      if (!request.cancel() || entry.may_stay()) {
        names->push_back(entry.name());
      }
    }
  }
  if (!any) {
    return NotFoundError("no worker or host is named '{}'{}", worker,
                         request.cancel() ? ": who has left does not stay" : "");
  }
  if (names->empty()) {
    return FailedPreconditionError("'{}' {}", worker,
                                   all_leave ? "leaves with the whole run, which was told to end"
                                             : "does not leave: there is nothing to take back");
  }
  if (request.cancel()) {
    machine_->Handle(DrainCancelled{worker});
  } else {
    machine_->Handle(DrainRequested{worker});
  }
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
  grpc::ServerUnaryReactor* reactor = MarkAuthorised(context);
  reactor->Finish(
      ToGrpc(SubmitJob(request->job_yaml(), request->job_path(), reply->mutable_job_id())));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Status(grpc::CallbackServerContext* context,
                                                          const wire::StatusRequest* /*request*/,
                                                          wire::JobStatus* reply) {
  grpc::ServerUnaryReactor* reactor = MarkAuthorised(context);
  Post([this, reactor, reply] {
    *reply = machine_->Describe();
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Drain(grpc::CallbackServerContext* context,
                                                         const wire::DrainRequest* request,
                                                         wire::DrainReply* reply) {
  grpc::ServerUnaryReactor* reactor = MarkAuthorised(context);
  std::vector<std::string> names;
  const heddle::Status status = DrainWorkers(*request, &names);
  for (const std::string& name : names) {
    reply->add_workers(name);
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Emulate(grpc::CallbackServerContext* context,
                                                           const wire::EmulateRequest* request,
                                                           wire::EmulateReply* /*reply*/) {
  grpc::ServerUnaryReactor* reactor = MarkAuthorised(context);
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

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Events(grpc::CallbackServerContext* context,
                                                          const wire::EventsRequest* request,
                                                          wire::EventsReply* reply) {
  grpc::ServerUnaryReactor* reactor = MarkAuthorised(context);
  Result<EventBytes> bytes = FailedPreconditionError("this coordinator keeps no log");
  if (options_.hooks.read_events) {
    bytes = options_.hooks.read_events(request->offset());
  }
  if (bytes.ok()) {
    reply->set_text(std::move(bytes->text));
    reply->set_job_id(std::move(bytes->job_id));
  }
  reactor->Finish(ToGrpc(bytes.status()));
  return reactor;
}

}  // namespace heddle::elastic
