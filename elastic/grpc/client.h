/// \file
/// The command line's client of the coordinator.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "elastic/grpc/event_bytes.h"
#include "elastic/identity/credentials.h"
#include "elastic/protocol/protocol.pb.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {

/// The calls of the command line. A call takes at most `timeout` for each coordinator that it asks.
/// `coordinator` is HOST:PORT, or a list of them separated by commas: a call asks the first one
/// that it reaches, and a standby names the leader, which is asked next. Thread: any.
/// Errors of every call: kUnavailable (no coordinator is reached, or none leads),
/// kDeadlineExceeded, kUnauthenticated and kPermissionDenied (certificates and roles), and those
/// of the coordinator.
class CoordinatorClient {
 public:
  /// Connects with TLS when `credentials` are given.
  explicit CoordinatorClient(const std::string& coordinator,
                             const Credentials& credentials = {},
                             Duration timeout = kCallTimeout);
  ~CoordinatorClient();

  /// Submits the job file's text `yaml`, read from `path`. Returns the job's id.
  Result<std::string> Submit(const std::string& yaml, const std::string& path);
  /// Returns the leader's status, or a standby's when no listed coordinator leads. A client with a
  /// single address returns the status of that coordinator, standby or not.
  Result<wire::JobStatus> Status();
  /// Drains a worker. `worker`: a worker's name, or a host for all its workers. Returns the names
  /// of the workers that leave. Errors: kNotFound (no such worker or host).
  Result<std::vector<std::string>> Drain(const std::string& worker);
  /// Takes back a drain: the workers that have not left yet stay. `worker` as for Drain. Returns
  /// the names of the workers that stay. Errors: kNotFound (no such worker or host),
  /// kFailedPrecondition (there is no drain that can be taken back).
  Result<std::vector<std::string>> CancelDrain(const std::string& worker);
  /// Reads the log of the coordinator's job from byte `offset` on, at most a MiB.
  Result<EventBytes> Events(int64_t offset);
  /// A change of what a worker emulates; fields of `emulation` without their flag stay as they are.
  struct EmulationChange {
    bool set_speed = false;
    bool set_memory = false;
    bool set_link = false;
    wire::Emulation emulation;
  };
  /// Registers a join token that the caller has made. For `seconds` it admits at most `uses`
  /// workers whose names match the pattern `names`. `hash`: HashOfSecret of the token's secret.
  heddle::Status AddToken(const std::string& hash,
                          const std::string& names,
                          double seconds,
                          int64_t uses);
  /// Revokes the certificates that the worker has now, and ends its connections.
  heddle::Status Revoke(const std::string& worker);
  /// Returns a certificate in PEM for the key of the certificate request, admitted by the secret of
  /// a join token. The client needs the authority's certificate and no certificate of its own.
  Result<std::string> Join(const std::string& secret,
                           const std::string& name,
                           const std::string& request_pem);
  /// Returns a certificate in PEM for the key of the certificate request and the worker whose
  /// certificate the client has.
  Result<std::string> Renew(const std::string& request_pem);
  /// Changes what a worker emulates. Errors: kNotFound (no worker has this name).
  heddle::Status Emulate(const std::string& worker, const EmulationChange& change);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The status as one JSON object, with the names of the .proto; what `heddle status --json` prints.
std::string StatusToJson(const wire::JobStatus& status);

}  // namespace heddle::elastic
