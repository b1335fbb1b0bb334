#include "elastic/grpc/client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include "elastic/grpc/channel.h"
#include "elastic/grpc/control.grpc.pb.h"

namespace heddle::elastic {
namespace {

Status FromGrpc(const grpc::Status& status) {
  return status.ok() ? Status::Ok()
                     : Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

class CoordinatorClient::Impl {
 public:
  Impl(const std::string& coordinator, Duration timeout)
      : stub_(wire::Control::NewStub(MakeChannel(coordinator))),
        timeout_(timeout) {}

  void Bound(grpc::ClientContext* context) const {
    context->set_deadline(
        std::chrono::system_clock::now() +
        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout_));
  }
  wire::Control::Stub& stub() { return *stub_; }

 private:
  const std::unique_ptr<wire::Control::Stub> stub_;
  const Duration timeout_;
};

CoordinatorClient::CoordinatorClient(const std::string& coordinator, Duration timeout)
    : impl_(std::make_unique<Impl>(coordinator, timeout)) {}
CoordinatorClient::~CoordinatorClient() = default;

Result<std::string> CoordinatorClient::Submit(const std::string& yaml, const std::string& path) {
  grpc::ClientContext context;
  impl_->Bound(&context);
  wire::SubmitRequest request;
  request.set_job_yaml(yaml);
  request.set_job_path(path);
  wire::SubmitReply reply;
  HEDDLE_RETURN_IF_ERROR(FromGrpc(impl_->stub().Submit(&context, request, &reply)));
  return reply.job_id();
}

Result<wire::JobStatus> CoordinatorClient::Status() {
  grpc::ClientContext context;
  impl_->Bound(&context);
  wire::JobStatus reply;
  HEDDLE_RETURN_IF_ERROR(FromGrpc(impl_->stub().Status(&context, wire::StatusRequest(), &reply)));
  return reply;
}

Result<std::vector<std::string>> CoordinatorClient::Drain(const std::string& worker) {
  grpc::ClientContext context;
  impl_->Bound(&context);
  wire::DrainRequest request;
  request.set_worker(worker);
  wire::DrainReply reply;
  HEDDLE_RETURN_IF_ERROR(FromGrpc(impl_->stub().Drain(&context, request, &reply)));
  return std::vector<std::string>(reply.workers().begin(), reply.workers().end());
}

heddle::Status CoordinatorClient::Emulate(const std::string& worker,
                                          const EmulationChange& change) {
  grpc::ClientContext context;
  impl_->Bound(&context);
  wire::EmulateRequest request;
  request.set_worker(worker);
  *request.mutable_emulation() = change.emulation;
  request.set_set_speed(change.set_speed);
  request.set_set_memory(change.set_memory);
  request.set_set_link(change.set_link);
  wire::EmulateReply reply;
  return FromGrpc(impl_->stub().Emulate(&context, request, &reply));
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
