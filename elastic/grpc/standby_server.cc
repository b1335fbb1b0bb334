#include "elastic/grpc/standby_server.h"

#include <utility>

#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "elastic/grpc/connection/control_port.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/protocol/coordinator_route.h"

namespace heddle::elastic {
namespace {

// A stream that ends at once.
class RefusedStream : public grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

class StandbyServer::Impl : public wire::Control::CallbackService {
 public:
  heddle::Status Start(const std::string& listen, const Credentials& credentials) {
    HEDDLE_ASSIGN_OR_RETURN(port_,
                            ControlPort::Open({.listen = listen, .credentials = credentials}));
    return port_->Serve(*this);
  }

  const std::string& address() const { return port_->address(); }

  void Set(const std::string& leader, const std::string& reason) {
    const MutexLock lock(mutex_);
    leader_ = leader;
    reason_ = reason;
  }

  grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>* Session(
      grpc::CallbackServerContext* context) override {
    return new RefusedStream(Refusal(context));
  }
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const wire::SubmitRequest* /*request*/,
                                   wire::SubmitReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const wire::DrainRequest* /*request*/,
                                  wire::DrainReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Emulate(grpc::CallbackServerContext* context,
                                    const wire::EmulateRequest* /*request*/,
                                    wire::EmulateReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Events(grpc::CallbackServerContext* context,
                                   const wire::EventsRequest* /*request*/,
                                   wire::EventsReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* AddToken(grpc::CallbackServerContext* context,
                                     const wire::AddTokenRequest* /*request*/,
                                     wire::AddTokenReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Revoke(grpc::CallbackServerContext* context,
                                   const wire::RevokeRequest* /*request*/,
                                   wire::RevokeReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const wire::JoinRequest* /*request*/,
                                 wire::CertificateReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const wire::RenewRequest* /*request*/,
                                  wire::CertificateReply* /*reply*/) override {
    return Refuse(context);
  }
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const wire::StatusRequest* /*request*/,
                                   wire::JobStatus* reply) override {
    {
      port_->NoteAuthorised(*context);
      const MutexLock lock(mutex_);
      context->AddTrailingMetadata(kLeaderKey, leader_);
      reply->set_phase("standby");
      reply->set_reason(reason_);
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  grpc::Status Refusal(grpc::CallbackServerContext* context) {
    const MutexLock lock(mutex_);
    context->AddTrailingMetadata(kLeaderKey, leader_);
    return {grpc::StatusCode::UNAVAILABLE, "this coordinator stands by: " + reason_};
  }

  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(Refusal(context));
    return reactor;
  }

  Mutex mutex_;
  std::string leader_ HEDDLE_GUARDED_BY(mutex_);
  std::string reason_ HEDDLE_GUARDED_BY(mutex_) = "it is not known yet who leads";
  std::unique_ptr<ControlPort> port_;  // Last: its threads call what is above.
};

StandbyServer::StandbyServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StandbyServer::~StandbyServer() = default;

Result<std::unique_ptr<StandbyServer>> StandbyServer::Start(const std::string& listen,
                                                            const Credentials& credentials) {
  auto impl = std::make_unique<Impl>();
  HEDDLE_RETURN_IF_ERROR(impl->Start(listen, credentials));
  return std::unique_ptr<StandbyServer>(new StandbyServer(std::move(impl)));
}

const std::string& StandbyServer::address() const {
  return impl_->address();
}
void StandbyServer::Set(const std::string& leader, const std::string& reason) {
  impl_->Set(leader, reason);
}

}  // namespace heddle::elastic
