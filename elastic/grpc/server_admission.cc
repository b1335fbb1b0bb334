// Certificates that the coordinator issues, by a join token and as renewals.
#include <utility>

#include <grpcpp/grpcpp.h>

#include "base/log.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/server_impl.h"
#include "elastic/identity/join_token.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

std::string JoinSecretOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kJoinSecretKey);
  return found == context.client_metadata().end()
             ? ""
             : std::string(found->second.data(), found->second.size());
}

}  // namespace

heddle::Status CoordinatorServer::Impl::ChangeAdmission(
    const std::function<heddle::Status(Admission&)>& change) {
  auto stalled =
      std::make_shared<heddle::Status>(UnavailableError("the coordinator is going away"));
  CallAndWait([this, stalled] { *stalled = Stalled(); });
  HEDDLE_RETURN_IF_ERROR(*stalled);
  return AwaitStored(
      [this, change](std::shared_ptr<const bool> given_up, const DurableMachine::Answer& answer) {
        machine_->ChangeAdmission(change, std::move(given_up), answer);
      },
      [] {});
}

heddle::Status CoordinatorServer::Impl::CheckIssues() const {
  return options_.issuer.authority.key.empty() || options_.credentials.empty()
             ? FailedPreconditionError(
                   "this coordinator makes no certificates: it runs without `heddle serve "
                   "--authority DIR`")
             : heddle::Status::Ok();
}

// The certificate is made first, so that an invalid request does not count as a use of the token;
// it is sent only once the use is stored.
heddle::Status CoordinatorServer::Impl::Admit(const grpc::CallbackServerContext& context,
                                              const wire::JoinRequest& request,
                                              std::string* certificate) {
  HEDDLE_RETURN_IF_ERROR(CheckIssues());
  HEDDLE_ASSIGN_OR_RETURN(const Identity identity, ParseIdentity("worker/" + request.name()));
  HEDDLE_ASSIGN_OR_RETURN(std::string made, IssueFor(options_.issuer.authority, identity,
                                                     request.request_pem(), options_.issuer.life));
  const std::string hash = HashOfSecret(JoinSecretOf(context));
  const heddle::Status used = ChangeAdmission([&](Admission& admission) {
    return UseGrant(admission, hash, identity.name, WallClockSeconds());
  });
  if (used.code() == StatusCode::kUnauthenticated || used.code() == StatusCode::kPermissionDenied) {
    port_->NoteRefusal(RefusalReason::kToken, used.message());
  }
  HEDDLE_RETURN_IF_ERROR(used);
  LogInfo("a token admits worker/{}", identity.name);
  *certificate = std::move(made);
  return heddle::Status::Ok();
}

heddle::Status CoordinatorServer::Impl::RenewFor(const std::string& worker,
                                                 const std::string& request_pem,
                                                 std::string* certificate) {
  HEDDLE_RETURN_IF_ERROR(CheckIssues());
  HEDDLE_ASSIGN_OR_RETURN(*certificate, IssueFor(options_.issuer.authority, {Role::kWorker, worker},
                                                 request_pem, options_.issuer.life));
  return heddle::Status::Ok();
}

// Removes the worker at once, although the workers that train with it may still hear it.
void CoordinatorServer::Impl::Evict(const std::string& worker, const std::string& reason) {
  const wire::JobStatus status = machine_->Describe();
  for (const wire::JobStatus::Worker& entry : status.workers()) {
    if (entry.name() == worker) {
      machine_->Handle(ProcessExited{worker, entry.pid(), reason});
    }
  }
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::AddToken(grpc::CallbackServerContext* context,
                                                            const wire::AddTokenRequest* request,
                                                            wire::AddTokenReply* /*reply*/) {
  grpc::ServerUnaryReactor* const reactor = MarkAuthorised(context);
  heddle::Status status = CheckIssues();
  if (status.ok()) {
    status = ChangeAdmission([grant = *request](Admission& admission) {
      return AddGrant(admission, grant.hash(),
                      {.names = grant.names(), .ends = 0, .uses_left = grant.uses()},
                      grant.seconds(), WallClockSeconds());
    });
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Revoke(grpc::CallbackServerContext* context,
                                                          const wire::RevokeRequest* request,
                                                          wire::RevokeReply* /*reply*/) {
  grpc::ServerUnaryReactor* const reactor = MarkAuthorised(context);
  heddle::Status status = ParseIdentity("worker/" + request->worker()).status();
  if (status.ok()) {
    // Covers certificates that are renewed before this is stored.
    const double until = WallClockSeconds() + Seconds(kStoredWithin);
    status = ChangeAdmission([worker = request->worker(), until](Admission& admission) {
      return elastic::Revoke(admission, worker, until);
    });
  }
  if (status.ok()) {
    LogInfo("the certificates of worker/{} are revoked", request->worker());
    sessions_.CancelOf(request->worker());
    Post([this, worker = request->worker()] { Evict(worker, "its certificates were revoked"); });
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Join(grpc::CallbackServerContext* context,
                                                        const wire::JoinRequest* request,
                                                        wire::CertificateReply* reply) {
  grpc::ServerUnaryReactor* const reactor = MarkAuthorised(context);
  const heddle::Status status = Admit(*context, *request, reply->mutable_certificate_pem());
  if (status.ok() && options_.hooks.issued) {
    options_.hooks.issued("token");
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServer::Impl::Renew(grpc::CallbackServerContext* context,
                                                         const wire::RenewRequest* request,
                                                         wire::CertificateReply* reply) {
  grpc::ServerUnaryReactor* const reactor = MarkAuthorised(context);
  const heddle::Status status = RenewFor(port_->WorkerOf(*context).value_or(""),
                                         request->request_pem(), reply->mutable_certificate_pem());
  if (status.ok() && options_.hooks.issued) {
    options_.hooks.issued("renewal");
  }
  reactor->Finish(ToGrpc(status));
  return reactor;
}

}  // namespace heddle::elastic
