#include "elastic/grpc/client.h"

#include <optional>
#include <utility>

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/identity/join_token.h"
#include "elastic/protocol/coordinator_route.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

// Whether the other end is reached by this time. Returns as soon as it refuses the connection.
bool Connects(grpc::Channel& channel, std::chrono::system_clock::time_point by) {
  for (auto state = channel.GetState(true); state != GRPC_CHANNEL_READY;
       state = channel.GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || !channel.WaitForStateChange(state, by)) {
      return false;
    }
  }
  return true;
}

}  // namespace

class CoordinatorClient::Impl {
 public:
  Impl(std::string coordinators, Credentials credentials, Duration timeout)
      : coordinators_(std::move(coordinators)),
        credentials_(std::move(credentials)),
        timeout_(timeout) {}

  // Makes `call` to each coordinator of the list, and to those that they name, until one leads.
  template <typename Call>
  heddle::Status Ask(const Call& call) const {
    CoordinatorRoute route(coordinators_);
    const bool several = route.listed().size() > 1;
    heddle::Status status;
    for (size_t listed = 0; listed < route.listed().size() || route.is_named();) {
      listed += route.is_named() ? 0 : 1;
      const std::shared_ptr<grpc::Channel> channel = MakeChannel(route.current(), credentials_);
      // Connects first: a call that has begun is not repeated elsewhere, or a change could be made
      // twice.
      if (several && !Connects(*channel, WallTime(std::min(timeout_, kConnectTimeout)))) {
        status = UnavailableError("{}: no coordinator answers", route.current());
        route.MoveOn("");
        continue;
      }
      grpc::ClientContext context;
      context.set_deadline(WallTime(timeout_));
      const auto stub = wire::Control::NewStub(channel);
      status = FromGrpc(call(*stub, &context));
      const auto& metadata = context.GetServerTrailingMetadata();
      const auto leader = metadata.find(kLeaderKey);
      if (leader == metadata.end()) {
        return status;
      }
      if (status.ok() && !several) {
        return status;
      }
      route.MoveOn(std::string(leader->second.data(), leader->second.size()));
    }
    return status;
  }

  Result<std::vector<std::string>> Drain(const wire::DrainRequest& request) const {
    wire::DrainReply reply;
    HEDDLE_RETURN_IF_ERROR(Ask([&](auto& stub, grpc::ClientContext* context) {
      return stub.Drain(context, request, &reply);
    }));
    return std::vector<std::string>(reply.workers().begin(), reply.workers().end());
  }

 private:
  static std::chrono::system_clock::time_point WallTime(Duration from_now) {
    return std::chrono::system_clock::now() +
           std::chrono::duration_cast<std::chrono::system_clock::duration>(from_now);
  }

  const std::string coordinators_;
  const Credentials credentials_;
  const Duration timeout_;
};

CoordinatorClient::CoordinatorClient(const std::string& coordinator,
                                     const Credentials& credentials,
                                     Duration timeout)
    : impl_(std::make_unique<Impl>(coordinator, credentials, timeout)) {}
CoordinatorClient::~CoordinatorClient() = default;

Result<std::string> CoordinatorClient::Submit(const std::string& yaml, const std::string& path) {
  wire::SubmitRequest request;
  request.set_job_yaml(yaml);
  request.set_job_path(path);
  wire::SubmitReply reply;
  HEDDLE_RETURN_IF_ERROR(impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.Submit(context, request, &reply);
  }));
  return reply.job_id();
}

Result<wire::JobStatus> CoordinatorClient::Status() {
  std::optional<wire::JobStatus> last;
  const heddle::Status status = impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    wire::JobStatus reply;
    const grpc::Status answer = stub.Status(context, wire::StatusRequest(), &reply);
    if (answer.ok()) {
      last = std::move(reply);
    }
    return answer;
  });
  if (last) {
    return *std::move(last);
  }
  return status;
}

Result<std::vector<std::string>> CoordinatorClient::Drain(const std::string& worker) {
  wire::DrainRequest request;
  request.set_worker(worker);
  return impl_->Drain(request);
}

Result<std::vector<std::string>> CoordinatorClient::CancelDrain(const std::string& worker) {
  wire::DrainRequest request;
  request.set_worker(worker);
  request.set_cancel(true);
  return impl_->Drain(request);
}

heddle::Status CoordinatorClient::Emulate(const std::string& worker,
                                          const EmulationChange& change) {
  wire::EmulateRequest request;
  request.set_worker(worker);
  *request.mutable_emulation() = change.emulation;
  request.set_set_speed(change.set_speed);
  request.set_set_memory(change.set_memory);
  request.set_set_link(change.set_link);
  wire::EmulateReply reply;
  return impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.Emulate(context, request, &reply);
  });
}

heddle::Status CoordinatorClient::AddToken(const std::string& hash,
                                           const std::string& names,
                                           double seconds,
                                           int64_t uses) {
  wire::AddTokenRequest request;
  request.set_hash(hash);
  request.set_names(names);
  request.set_seconds(seconds);
  request.set_uses(uses);
  wire::AddTokenReply reply;
  return impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.AddToken(context, request, &reply);
  });
}

heddle::Status CoordinatorClient::Revoke(const std::string& worker) {
  wire::RevokeRequest request;
  request.set_worker(worker);
  wire::RevokeReply reply;
  return impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.Revoke(context, request, &reply);
  });
}

Result<std::string> CoordinatorClient::Join(const std::string& secret,
                                            const std::string& name,
                                            const std::string& request_pem) {
  wire::JoinRequest request;
  request.set_name(name);
  request.set_request_pem(request_pem);
  wire::CertificateReply reply;
  HEDDLE_RETURN_IF_ERROR(impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    context->AddMetadata(kJoinSecretKey, secret);
    return stub.Join(context, request, &reply);
  }));
  return reply.certificate_pem();
}

Result<std::string> CoordinatorClient::Renew(const std::string& request_pem) {
  wire::RenewRequest request;
  request.set_request_pem(request_pem);
  wire::CertificateReply reply;
  HEDDLE_RETURN_IF_ERROR(impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.Renew(context, request, &reply);
  }));
  return reply.certificate_pem();
}

Result<EventBytes> CoordinatorClient::Events(int64_t offset) {
  wire::EventsRequest request;
  request.set_offset(offset);
  wire::EventsReply reply;
  HEDDLE_RETURN_IF_ERROR(impl_->Ask([&](auto& stub, grpc::ClientContext* context) {
    return stub.Events(context, request, &reply);
  }));
  return EventBytes{.text = std::move(*reply.mutable_text()), .job_id = reply.job_id()};
}

std::string StatusToJson(const wire::JobStatus& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto converted = google::protobuf::util::MessageToJsonString(status, &text, options);
  return converted.ok() ? text : "{}";
}

}  // namespace heddle::elastic
