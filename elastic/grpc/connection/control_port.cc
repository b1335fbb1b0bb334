#include "elastic/grpc/connection/control_port.h"

#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include "base/log.h"
#include "elastic/grpc/connection/access.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/connection/server_tls.h"
#include "elastic/identity/join_token.h"

namespace heddle::elastic {
namespace {

// Bounds of a handshake, up to HTTP/2, and of a connection without a call.
constexpr int kHandshakeMilliseconds = 5000;
constexpr int kIdleMilliseconds = 30000;
// A worker and a command line use one stream each.
constexpr int kStreamsOfAConnection = 16;
constexpr Duration kNoteEvery = std::chrono::seconds(60);
constexpr Duration kLookAgain = std::chrono::seconds(1);  // Time between reads of the certificate.
// Most memory of all connections and their half-received messages; above it gRPC ends calls, and
// workers connect again.
constexpr size_t kMaxBufferedBytes = size_t{192} << 20;
constexpr char kTlsHandshakeRecord = 0x16;

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

std::string PropertyOf(const grpc::AuthContext& context, const std::string& name) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(name);
  return values.size() == 1 ? std::string(values.front().data(), values.front().size()) : "";
}

void SetLimits(grpc::ServerBuilder& builder, const grpc::ResourceQuota& quota) {
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsOfAConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
}

std::shared_ptr<Acceptor> AddAcceptor(grpc::ServerBuilder& builder,
                                      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

void HandOver(Acceptor& acceptor, UniqueFd connection) {
  Acceptor::NewConnectionParameters parameters;
  parameters.fd = connection.Release();
  acceptor.HandleNewConnection(&parameters);
}

void End(const std::shared_ptr<grpc::Server>& server) {
  if (server != nullptr) {
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    server->Wait();
  }
}

}  // namespace

// Authorises every call. gRPC asks it for each one, of a known method or not, once the call's
// metadata is there.
class CallGuard : public CallJudge {
 public:
  CallGuard(std::unique_ptr<PeerVerifier> verifier, ControlPort& port)
      : verifier_(std::move(verifier)),
        port_(port) {}

  Status Judge(const CallHead& call) override {
    const std::shared_ptr<const Admission> admission = port_.admission();
    if (IsByToken(call.path)) {
      return JudgeToken(call, admission.get());
    }
    const PeerVerdict verdict = verifier_->Verify(call.certificate);
    if (!verdict.status.ok()) {
      return Refuse(verdict.reason, verdict.status);
    }
    if (admission != nullptr && verdict.identity.role == Role::kWorker) {
      const Result<CertificateLife> life = LifeOf(call.certificate);
      const Status counts = life.ok()
                                ? CheckNotRevoked(*admission, verdict.identity.name, life->begins)
                                : life.status();
      if (!counts.ok()) {
        return Refuse(RefusalReason::kRevoked, counts);
      }
    }
    const Status allowed = CheckCall(call.path, verdict.identity);
    return allowed.ok() ? allowed : Refuse(RefusalReason::kRole, allowed);
  }

  PeerVerdict Verify(const grpc::AuthContext& context) const {
    return verifier_->Verify(PropertyOf(context, GRPC_X509_PEM_CERT_PROPERTY_NAME));
  }

 private:
  Status Refuse(RefusalReason reason, const Status& status) {
    port_.NoteRefusal(reason, status.message());
    return status;
  }
  // OK if the call has a join token that is valid now.
  Status JudgeToken(const CallHead& call, const Admission* admission) {
    if (admission == nullptr) {
      return UnavailableError("this coordinator stands by: another one takes join tokens");
    }
    if (call.join_secret.empty()) {
      return Refuse(RefusalReason::kToken, UnauthenticatedError("the call has no join token"));
    }
    const Status known = CheckGrant(*admission, HashOfSecret(call.join_secret), WallClockSeconds());
    return known.ok() ? known : Refuse(RefusalReason::kToken, known);
  }

  const std::unique_ptr<PeerVerifier> verifier_;
  ControlPort& port_;
};

// Refuses every call of a connection without TLS with a line that says so.
class TlsDemand : public grpc::CallbackGenericService {
 public:
  explicit TlsDemand(ControlPort& port) : port_(port) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    class Answer : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    const Status status = UnauthenticatedError(
        "this coordinator takes calls with a certificate only: give --certs DIR");
    port_.NoteRefusal(RefusalReason::kNoTls, status.message());
    return new Answer(ToGrpc(status));
  }

 private:
  ControlPort& port_;
};

ControlPort::ControlPort(ControlPortOptions options) : options_(std::move(options)) {}

ControlPort::~ControlPort() {
  if (listener_ != nullptr) {
    Close();
  }
}

Result<std::unique_ptr<ControlPort>> ControlPort::Open(ControlPortOptions options) {
  QuietGrpc();
  auto port = std::unique_ptr<ControlPort>(new ControlPort(std::move(options)));
  const ControlPortOptions& asked = port->options_;
  auto listener = ControlListener::Open(asked.listen);
  HEDDLE_RETURN_IF_ERROR(listener.status());
  port->listener_ = *std::move(listener);
  port->address_ = asked.listen.substr(0, asked.listen.rfind(':')) + ":" +
                   std::to_string(port->listener_->port());
  if (!asked.credentials.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(auto verifier, PeerVerifier::Make(asked.credentials.authority));
    HEDDLE_ASSIGN_OR_RETURN(port->own_, OwnCertificate::Make(asked.credentials));
    port->guard_ = std::make_unique<CallGuard>(std::move(verifier), *port);
    port->tls_demand_ = std::make_unique<TlsDemand>(*port);
    port->NoteCertificate();
    port->watch_ = Thread("certificate", [raw = port.get()] { raw->WatchCertificate(); });
  }
  return port;
}

Status ControlPort::Serve(grpc::Service& service) {
  grpc::ResourceQuota quota("control");
  quota.Resize(kMaxBufferedBytes);
  grpc::ServerBuilder builder;
  SetLimits(builder, quota);
  builder.RegisterService(&service);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (guard_ != nullptr) {
    credentials = MakeServerTls(*own_, *guard_);
  }
  const std::shared_ptr<Acceptor> acceptor = AddAcceptor(builder, credentials);
  server_ = builder.BuildAndStart();
  std::shared_ptr<Acceptor> plaintext = acceptor;
  bool is_started = server_ != nullptr;
  if (is_started && tls_demand_ != nullptr) {
    grpc::ServerBuilder other;
    SetLimits(other, quota);
    other.RegisterCallbackGenericService(tls_demand_.get());
    plaintext = AddAcceptor(other, grpc::InsecureServerCredentials());
    plaintext_server_ = other.BuildAndStart();
    is_started = plaintext_server_ != nullptr;
  }
  if (!is_started) {
    return InternalError("gRPC does not start a server");
  }
  listener_->Start([acceptor, plaintext](UniqueFd connection, char first_byte) {
    HandOver(first_byte == kTlsHandshakeRecord ? *acceptor : *plaintext, std::move(connection));
  });
  return Status::Ok();
}

std::optional<std::string> ControlPort::WorkerOf(const grpc::CallbackServerContext& context) const {
  if (guard_ == nullptr) {
    return std::nullopt;
  }
  return guard_->Verify(*context.auth_context()).identity.name;
}

void ControlPort::SetAdmission(std::shared_ptr<const Admission> admission) {
  const MutexLock lock(mutex_);
  admission_ = std::move(admission);
}

std::shared_ptr<const Admission> ControlPort::admission() const {
  const MutexLock lock(mutex_);
  return admission_;
}

void ControlPort::NoteAuthorised(const grpc::CallbackServerContext& context) {
  listener_->Name(context.peer());
}

void ControlPort::NoteRefusal(RefusalReason reason, const std::string& line) {
  if (options_.refused) {
    options_.refused(reason);
  }
  {
    const MutexLock lock(mutex_);
    const auto noted = noted_.find(reason);
    if (noted != noted_.end() && Now() - noted->second < kNoteEvery) {
      return;
    }
    noted_[reason] = Now();
  }
  LogWarning("refused a call reason={}: {}", RefusalReasonName(reason), line);
}

// ---- The coordinator's own certificate ----

void ControlPort::NoteCertificate() {
  if (options_.certificate) {
    options_.certificate(own_->life().ends);
  }
}

void ControlPort::WatchCertificate() {
  while (true) {
    LookAtCertificate();
    const MutexLock lock(mutex_);
    const Time next = After(kLookAgain);
    while (!closing_ && Now() < next) {
      wake_.WaitUntil(mutex_, next);
    }
    if (closing_) {
      return;
    }
  }
}

void ControlPort::LookAtCertificate() {
  const Result<bool> another = own_->Look();
  if (const std::string trouble = another.status().message(); trouble != trouble_) {
    trouble_ = trouble;
    if (!trouble.empty()) {
      LogWarning("the certificate stays the one before: {}", trouble);
    }
  }
  const CertificateLife life = own_->life();
  if (another.ok() && *another) {
    LogInfo("another certificate counts for new connections, until {}", UtcText(life.ends));
    NoteCertificate();
  }
  if (WallClockSeconds() >= life.WarnedFrom() && warned_ != own_->version()) {
    warned_ = own_->version();
    LogWarning("the certificate in {} ends at {}: put another one there (heddle certs issue)",
               options_.credentials.folder, UtcText(life.ends));
  }
}

void ControlPort::Close() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(closing_, true)) {
      return;
    }
    wake_.NotifyAll();
  }
  watch_.Join();
  listener_->Close();  // Before what it hands connections to.
  End(server_);
  End(plaintext_server_);
}

}  // namespace heddle::elastic
