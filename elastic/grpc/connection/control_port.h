/// \file
/// The coordinator's port: its listener, the gRPC server behind it and, if it has a certificate,
/// the authorisation of calls. Included by the server only.
///
/// With a certificate every connection is TLS. The client is asked for a certificate, and each call
/// is checked before a byte of its message is read: the certificate by elastic/identity, the role
/// by access.h. The handshake proves that the client has the key but accepts any certificate, so
/// that a call with a bad one is answered with one line that says what is wrong. A client that does
/// not use TLS gets such an answer, too. The certificate's folder is read again about every second:
/// a certificate that is put there is used for new connections.
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
  Credentials credentials;  ///< The coordinator's; empty: every client may make every call.
  /// Called for each refused call. May be empty. Thread: gRPC's.
  std::function<void(RefusalReason reason)> refused = {};
  /// Called with the end of the coordinator's certificate, in seconds since the epoch, by Open and
  /// again for each certificate that replaces it. May be empty. Thread: the caller of Open, then
  /// the port's.
  std::function<void(double ends)> certificate = {};
};

/// The coordinator's port. Thread: any, but for Serve and Close, which one caller makes.
class ControlPort {
 public:
  /// Listens; connections wait until Serve. Errors: kResourceExhausted (port taken),
  /// kInvalidArgument (address), those of the certificates.
  static Result<std::unique_ptr<ControlPort>> Open(ControlPortOptions options);
  ~ControlPort();  ///< Close().

  /// HOST:PORT to connect to.
  const std::string& address() const { return address_; }
  /// Accepts connections for `service`, which outlives this. Errors: kInternal (gRPC does not
  /// start).
  Status Serve(grpc::Service& service);
  /// The name in the certificate of the call's client, empty if that certificate is not valid;
  /// nullopt when the port has no certificates.
  std::optional<std::string> WorkerOf(const grpc::CallbackServerContext& context) const;
  /// Sets the join tokens and the revoked certificates that calls are checked against. Before the
  /// first call of it every join token is refused.
  void SetAdmission(std::shared_ptr<const Admission> admission) HEDDLE_EXCLUDES(mutex_);
  /// What SetAdmission has set last; null before.
  std::shared_ptr<const Admission> admission() const HEDDLE_EXCLUDES(mutex_);
  /// Records that a call was authorised: its connection may stay open (ControlListener::Name).
  void NoteAuthorised(const grpc::CallbackServerContext& context);
  /// Counts a refusal and logs `line`, at most once a minute for each reason.
  void NoteRefusal(RefusalReason reason, const std::string& line);
  /// Stops accepting connections, ends the calls and waits until they have ended; idempotent.
  void Close();

 private:
  explicit ControlPort(ControlPortOptions options);
  void NoteCertificate();
  void WatchCertificate();
  void LookAtCertificate();

  const ControlPortOptions options_;
  std::string address_;
  std::unique_ptr<OwnCertificate> own_;    ///< Null without certificates.
  std::unique_ptr<CallGuard> guard_;       ///< Null without certificates.
  std::unique_ptr<TlsDemand> tls_demand_;  ///< Null without certificates.
  std::unique_ptr<ControlListener> listener_;
  std::shared_ptr<grpc::Server> server_;  ///< Not shared; a unique_ptr would need the full type.
  /// Answers connections without TLS; null without certificates.
  std::shared_ptr<grpc::Server> plaintext_server_;

  std::string trouble_;  ///< Watch thread only: the last logged error of the folder.
  int64_t warned_ = 0;   ///< Watch thread only: the last version warned of as ending soon.

  mutable Mutex mutex_;
  std::shared_ptr<const Admission> admission_ HEDDLE_GUARDED_BY(mutex_);
  CondVar wake_;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  /// When a refusal was last logged, by reason.
  std::map<RefusalReason, Time> noted_ HEDDLE_GUARDED_BY(mutex_);
  Thread watch_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
