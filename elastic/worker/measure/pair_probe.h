/// \file
/// A worker's part in the measurement of links by pair: an endpoint of its own, so that a
/// measurement touches no generation of the job, and one group of the two a transport.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// Thread: any; one Measure at a time.
class PairProbe {
 public:
  /// An endpoint like the one that `options` are of, but for its metrics, which nobody sees.
  /// Errors: those of comm::Endpoint::Create.
  static Result<std::unique_ptr<PairProbe>> Create(comm::EndpointOptions options);

  /// Of the endpoint.
  std::string address() const { return endpoint_->address(); }
  /// The job's, for the connects that come; a measurement is of all transports.
  void SetJob(comm::EndpointConfig config);
  void SetLinkRate(double bytes_per_second) { endpoint_->SetLinkRate(bytes_per_second); }
  /// Latency and bandwidth to the other member by each transport that joins the two: the best of
  /// two short rounds, about 30 ms a transport and at most 1 s; request.seconds in all, and never
  /// more than a minute.
  wire::LinksMeasured Measure(const wire::MeasureLinks& request);
  /// Ends a Measure under way, and makes those that come fail.
  void Stop();

 private:
  explicit PairProbe(std::unique_ptr<metrics::Registry> unused)
      : unused_metrics_(std::move(unused)) {}

  // A measurement's traffic is not the job's.
  std::unique_ptr<metrics::Registry> unused_metrics_;
  std::unique_ptr<comm::Endpoint> endpoint_;
};

}  // namespace heddle::elastic
