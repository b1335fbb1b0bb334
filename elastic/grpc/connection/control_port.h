/// \file
/// The coordinator's address: its listener, gRPC behind it and, where it has a certificate, who may
/// come in. Included by the server only.
///
/// With a certificate every connection is TLS. Whoever connects is asked for a certificate, and
/// each of its calls is checked before a byte of its message is read: the certificate by
/// elastic/identity, the role by access.h. TLS itself lets a bad certificate pass, so that the
/// caller is told, in one line, what is wrong; it proves the key. Who does not speak TLS is told
/// the same way. The certificate's folder is looked at while it is served: what is put there counts
/// for new connections.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "elastic/control/admission.h"
#include "elastic/grpc/connection/control_listener.h"
#include "elastic/identity/credentials.h"
#include "elastic/identity/own_certificate.h"
#include "elastic/identity/verifier.h"

namespace grpc {
class CallbackServerContext;
class Server;
class Service;
}  // namespace grpc

namespace heddle::elastic {

class CallGuard;
class TlsDemand;

struct ControlPortOptions {
  std::string listen;       ///< HOST:PORT; port 0: any free one.
  Credentials credentials;  ///< The coordinator's; empty: everybody may do everything.
  /// A call was refused. May be empty. Thread: gRPC's.
  std::function<void(RefusalReason reason)> refused = {};
  /// When the coordinator's certificate ends, in seconds since the epoch: at first, and for each
  /// that takes its place. May be empty. Thread: that of Open, then one of its own.
  std::function<void(double ends)> certificate = {};
};

/// Thread: any, but for Serve and Close, which one caller makes.
class ControlPort {
 public:
  /// Listens. Errors: kResourceExhausted (port taken), kInvalidArgument.
  static Result<std::unique_ptr<ControlPort>> Open(ControlPortOptions options);
  ~ControlPort();  ///< Close().

  /// HOST:PORT that others connect to.
  const std::string& address() const { return address_; }
  /// Accepts connections for `service`, which outlives this.
  Status Serve(grpc::Service& service);
  /// The name of the worker that the call's certificate is for, empty when it is for none; nothing:
  /// there are no certificates.
  std::optional<std::string> WorkerOf(const grpc::CallbackServerContext& context) const;
  /// Who may come in beside those with a role, and whose certificates no longer count. Until then
  /// nobody comes in by a token.
  void SetAdmission(std::shared_ptr<const Admission> admission) HEDDLE_EXCLUDES(mutex_);
  /// Null: SetAdmission was not called.
  std::shared_ptr<const Admission> admission() const HEDDLE_EXCLUDES(mutex_);
  /// A call was let in: its connection is no stranger's any more.
  void NoteLetIn(const grpc::CallbackServerContext& context);
  /// Counts a refusal, and logs it; of one reason no more than a line a minute.
  void NoteRefusal(RefusalReason reason, const std::string& line);
  /// Takes no connection any more and waits until all calls have ended; idempotent.
  void Close();

 private:
  explicit ControlPort(ControlPortOptions options);
  void NoteCertificate();
  void WatchCertificate();
  void LookAtCertificate();

  const ControlPortOptions options_;
  std::string address_;
  std::unique_ptr<OwnCertificate> own_;    ///< Null: no certificates.
  std::unique_ptr<CallGuard> guard_;       ///< Likewise.
  std::unique_ptr<TlsDemand> tls_demand_;  ///< Likewise.
  std::unique_ptr<ControlListener> listener_;
  std::shared_ptr<grpc::Server> server_;            ///< Nobody shares it; the type is unknown here.
  std::shared_ptr<grpc::Server> plaintext_server_;  ///< Tells who does not speak TLS.

  std::string trouble_;  ///< The watch's: what is wrong with the folder, as it was said.
  int64_t warned_ = 0;   ///< Likewise: the version whose end was said to be near.

  mutable Mutex mutex_;
  std::shared_ptr<const Admission> admission_ HEDDLE_GUARDED_BY(mutex_);
  CondVar wake_;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::map<RefusalReason, Time> noted_ HEDDLE_GUARDED_BY(mutex_);
  Thread watch_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
