#include "elastic/store/etcd/etcd_client.h"

#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "base/system/file.h"
#include "elastic/protocol/service_limits.h"
#include "elastic/store/etcd/rpc.grpc.pb.h"

namespace heddle::elastic {
namespace {

namespace pb = etcdserverpb;

constexpr int64_t kMaxPemBytes = 1 << 20;
// The answer to a range of a few keys, each as large as etcd takes one.
constexpr int kMaxAnswerBytes = 16 << 20;

// Another member, or the same one later, may do better.
bool IsPassing(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
      return true;
    default:
      return false;
  }
}

std::chrono::system_clock::time_point WallTime(Deadline deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline - Now());
}

// One member of the cluster, and a connection to it.
struct Member {
  explicit Member(const std::string& where, const std::shared_ptr<grpc::ChannelCredentials>& with)
      : address(where) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
    // Within which a connection is made.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                     static_cast<int>(kEtcdAnswerWithin / std::chrono::milliseconds(1)));
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto channel = grpc::CreateCustomChannel(address, with, arguments);
    kv = pb::KV::NewStub(channel);
    lease = pb::Lease::NewStub(channel);
  }

  const std::string address;
  std::unique_ptr<pb::KV::Stub> kv;
  std::unique_ptr<pb::Lease::Stub> lease;
};

Result<std::string> ReadPem(const std::string& path) {
  return path.empty() ? Result<std::string>(std::string()) : ReadFile(path, kMaxPemBytes);
}

}  // namespace

class EtcdClient::Impl {
 public:
  Impl(const EtcdAddress& address, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : credentials_(std::move(credentials)),
        count_(address.endpoints.size()) {
    for (const std::string& endpoint : address.endpoints) {
      members_.push_back(std::make_shared<Member>(endpoint, credentials_));
    }
  }

  // `call` asks one member. Each is asked once.
  template <typename Call>
  Status Ask(const char* what, Deadline deadline, const Call& call) {
    grpc::Status answer;
    std::shared_ptr<Member> member;
    for (size_t asked = 0; asked < count_; ++asked) {
      size_t place = 0;
      {
        const MutexLock lock(mutex_);
        place = first_;
        member = members_[place];
      }
      grpc::ClientContext context;
      context.set_deadline(WallTime(std::min(deadline, After(kEtcdAnswerWithin))));
      answer = call(*member, context);
      if (answer.ok()) {
        return Status::Ok();
      }
      if (!IsPassing(answer.error_code())) {
        break;
      }
      PassOver(place, member);
      if (Now() >= deadline) {
        break;
      }
    }
    const StatusCode code = IsPassing(answer.error_code())
                                ? StatusCode::kUnavailable
                                : static_cast<StatusCode>(answer.error_code());
    return Status(code, answer.error_message()).WithContext("etcd {}: {}", member->address, what);
  }

 private:
  void PassOver(size_t place, const std::shared_ptr<Member>& member) {
    const MutexLock lock(mutex_);
    if (first_ == place) {
      first_ = (place + 1) % count_;
    }
    // The next call begins with a connection of its own. One that swallows requests would be waited
    // for until the kernel gives it up; and one that was refused would be made again only while
    // calls wait for it, which none does: gRPC fails them at once.
    if (members_[place] == member) {
      members_[place] = std::make_shared<Member>(member->address, credentials_);
    }
  }

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const size_t count_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Member>> members_ HEDDLE_GUARDED_BY(mutex_);
  size_t first_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

EtcdClient::EtcdClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EtcdClient::~EtcdClient() = default;

Result<std::unique_ptr<EtcdClient>> EtcdClient::Open(const EtcdAddress& address) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (address.tls()) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string ca, ReadPem(address.ca_file));
    HEDDLE_ASSIGN_OR_RETURN(const std::string key, ReadPem(address.key_file));
    HEDDLE_ASSIGN_OR_RETURN(const std::string certificate, ReadPem(address.certificate_file));
    credentials = grpc::SslCredentials(
        {.pem_root_certs = ca, .pem_private_key = key, .pem_cert_chain = certificate});
  }
  return std::unique_ptr<EtcdClient>(
      new EtcdClient(std::make_unique<Impl>(address, std::move(credentials))));
}

Result<pb::TxnResponse> EtcdClient::Txn(const pb::TxnRequest& request, Deadline deadline) {
  pb::TxnResponse response;
  HEDDLE_RETURN_IF_ERROR(
      impl_->Ask("transaction", deadline, [&](Member& member, grpc::ClientContext& context) {
        return member.kv->Txn(&context, request, &response);
      }));
  return response;
}

Result<EtcdClient::Lease> EtcdClient::Grant(Duration length, Deadline deadline) {
  pb::LeaseGrantRequest request;
  request.set_ttl(std::chrono::ceil<std::chrono::seconds>(length).count());
  pb::LeaseGrantResponse response;
  HEDDLE_RETURN_IF_ERROR(
      impl_->Ask("lease", deadline, [&](Member& member, grpc::ClientContext& context) {
        return member.lease->LeaseGrant(&context, request, &response);
      }));
  if (!response.error().empty() || response.ttl() <= 0) {
    return UnavailableError("etcd: lease: {}", response.error());
  }
  return Lease{.id = response.id(), .length = std::chrono::seconds(response.ttl())};
}

Result<Duration> EtcdClient::KeepAlive(int64_t lease, Deadline deadline) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  HEDDLE_RETURN_IF_ERROR(
      impl_->Ask("lease's renewal", deadline, [&](Member& member, grpc::ClientContext& context) {
        const auto stream = member.lease->LeaseKeepAlive(&context);
        const bool answered = stream->Write(request) && stream->Read(&response);
        if (!answered) {
          const grpc::Status ended = stream->Finish();
          return ended.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "no answer") : ended;
        }
        stream->WritesDone();
        context.TryCancel();  // One answer is all that is wanted of it.
        stream->Finish();
        return grpc::Status::OK;
      }));
  if (response.ttl() <= 0) {
    return NotFoundError("etcd: the lease has ended");
  }
  return Duration(std::chrono::seconds(response.ttl()));
}

Status EtcdClient::Revoke(int64_t lease, Deadline deadline) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return impl_->Ask("lease's end", deadline, [&](Member& member, grpc::ClientContext& context) {
    return member.lease->LeaseRevoke(&context, request, &response);
  });
}

}  // namespace heddle::elastic
