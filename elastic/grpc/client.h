/// \file
/// The command line's way to the coordinator.
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

/// The calls of the command line; each is bounded by `timeout` for every coordinator that it asks.
/// `coordinator` is HOST:PORT, or several with commas between: the first that is there is asked,
/// and one that stands by names the leader, who is asked next. Thread: any. Errors: kUnavailable
/// (no coordinator there, or none that leads), kDeadlineExceeded, kUnauthenticated and
/// kPermissionDenied (certificates and roles), and the coordinator's own.
class CoordinatorClient {
 public:
  /// With credentials the connection is TLS.
  explicit CoordinatorClient(const std::string& coordinator,
                             const Credentials& credentials = {},
                             Duration timeout = kCallTimeout);
  ~CoordinatorClient();

  /// Returns the job's id.
  Result<std::string> Submit(const std::string& yaml, const std::string& path);
  /// Of several coordinators the leader's, or that of one which stands by when nobody leads; of a
  /// single one its own.
  Result<wire::JobStatus> Status();
  /// `worker`: a name, or a host for all its workers. Returns the names.
  Result<std::vector<std::string>> Drain(const std::string& worker);
  /// Likewise; those that have not left stay. Errors: kFailedPrecondition: none of them leaves.
  Result<std::vector<std::string>> CancelDrain(const std::string& worker);
  /// Of the log of the coordinator's job, from a byte on.
  Result<EventBytes> Events(int64_t offset);
  struct EmulationChange {
    bool set_speed = false;
    bool set_memory = false;
    bool set_link = false;
    wire::Emulation emulation;
  };
  /// A token that the caller has made admits `uses` workers whose names are of `names`, for
  /// `seconds`. `hash`: HashOfSecret.
  heddle::Status AddToken(const std::string& hash,
                          const std::string& names,
                          double seconds,
                          int64_t uses);
  /// The certificates that a worker has now count no more.
  heddle::Status Revoke(const std::string& worker);
  /// Certificates in PEM for the key of a request: for who has a token's secret and the credentials
  /// of an authority alone, and for a worker with a certificate of its own.
  Result<std::string> Join(const std::string& secret,
                           const std::string& name,
                           const std::string& request_pem);
  Result<std::string> Renew(const std::string& request_pem);
  heddle::Status Emulate(const std::string& worker, const EmulationChange& change);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The status as one JSON object, with the names of the .proto; what `heddle status --json` prints.
std::string StatusToJson(const wire::JobStatus& status);

}  // namespace heddle::elastic
