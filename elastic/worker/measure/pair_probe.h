/// \file
/// A worker's part in measuring the link to another worker. It has an endpoint of its own, so that
/// a measurement does not affect the job's generations, and connects the two workers in one group
/// for each transport.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "comm/communicator.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

/// An endpoint for measuring links by pair. Thread: any; one Measure at a time.
class PairProbe {
 public:
  /// Opens the endpoint. `options`: those of the worker's endpoint, whose metrics are not used.
  /// Errors: those of comm::Endpoint::Create.
  static Result<std::unique_ptr<PairProbe>> Create(comm::EndpointOptions options);

  /// The endpoint's address.
  std::string address() const { return endpoint_->address(); }
  /// Sets the job of later measurements, without its choice of transports: all are measured.
  void SetJob(comm::EndpointConfig config);
  /// Sets the emulated rate of the endpoint; 0: not emulated.
  void SetLinkRate(double bytes_per_second) { endpoint_->SetLinkRate(bytes_per_second); }
  /// Measures the latency and the bandwidth to the other member by each requested transport: the
  /// best of two short rounds, about 30 ms a transport and at most 1 s. Takes at most
  /// request.seconds and at most a minute. Errors are in the reply, for each transport or for the
  /// whole request.
  wire::LinksMeasured Measure(const wire::MeasureLinks& request);
  /// Ends a Measure under way with an error, and makes later ones fail.
  void Stop();

 private:
  explicit PairProbe(std::unique_ptr<metrics::Registry> unused)
      : unused_metrics_(std::move(unused)) {}

  // Takes the endpoint's metrics, since a measurement's traffic is not the job's.
  std::unique_ptr<metrics::Registry> unused_metrics_;
  std::unique_ptr<comm::Endpoint> endpoint_;
};

}  // namespace heddle::elastic
