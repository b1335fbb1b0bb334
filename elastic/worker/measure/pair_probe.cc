#include "elastic/worker/measure/pair_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/endpoint/measure.h"
#include "comm/transport/transport.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

constexpr double kLongestSeconds = 60;
// Bound of one transport's trial: two workers that are busy with something else for longer measure
// nothing of use. Trial i ends i + 1 bounds after the measurement began, at both ends. So a worker
// whose attempt fails at once is ahead of the other only until the trial's time is over there.
constexpr Duration kTrial = std::chrono::seconds(1);
// Bound of each route but the last: if all routes are tried (kMaxRoutes), half of a trial is left
// for the last one.
constexpr Duration kRoute = kTrial / (2 * (comm::kMaxRoutes - 1));
// The best round counts, since contention only makes a link look worse than it is.
constexpr uint64_t kRounds = 2;
// Small, but more than the burst that a network lets through before it limits a flow to its rate.
constexpr comm::MeasureBudget kBudget{.round_trips = 17,
                                      .latency = std::chrono::milliseconds(2),
                                      .long_enough = std::chrono::milliseconds(8),
                                      .most_bytes = int64_t{4} << 20,
                                      .bandwidth = std::chrono::milliseconds(100)};

Status Check(const wire::MeasureLinks& request) {
  const bool sound = request.members_size() == 2 && (request.rank() == 0 || request.rank() == 1) &&
                     request.request() > 0 && request.transports_size() <= kMaxMeasuredTransports &&
                     std::isfinite(request.seconds()) && request.seconds() > 0;
  return sound ? Status::Ok()
               : InvalidArgumentError("not a measurement of two workers: {}",
                                      request.ShortDebugString().substr(0, 200));
}

Result<comm::Link> MeasureOnce(comm::Endpoint& endpoint,
                               const comm::GroupOptions& options,
                               Deadline deadline) {
  HEDDLE_ASSIGN_OR_RETURN(const auto group, endpoint.Connect(options, deadline));
  const int other = 1 - options.rank;
  comm::Link best{.latency_seconds = std::numeric_limits<double>::infinity(),
                  .bytes_per_second = 0};
  for (uint64_t round = 1; round <= kRounds; ++round) {
    HEDDLE_ASSIGN_OR_RETURN(const comm::Link link,
                            comm::MeasurePair(*group, other, round, deadline, kBudget));
    best.latency_seconds = std::min(best.latency_seconds, link.latency_seconds);
    best.bytes_per_second = std::max(best.bytes_per_second, link.bytes_per_second);
  }
  // Both leave together: closing one end at once would cut the other's last messages.
  HEDDLE_RETURN_IF_ERROR(group->Barrier({.group = {}, .tag = kRounds + 1, .deadline = deadline}));
  return best;
}

}  // namespace

Result<std::unique_ptr<PairProbe>> PairProbe::Create(comm::EndpointOptions options) {
  std::unique_ptr<PairProbe> probe(new PairProbe(std::make_unique<metrics::Registry>()));
  options.metrics = probe->unused_metrics_.get();
  HEDDLE_ASSIGN_OR_RETURN(probe->endpoint_, comm::Endpoint::Create(options));
  return probe;
}

void PairProbe::SetJob(comm::EndpointConfig config) {
  config.job += " links";
  config.transports.clear();
  const Status configured = endpoint_->Configure(config);
  HEDDLE_CHECK(configured.ok(), "all transports: {}", configured.message());
}

wire::LinksMeasured PairProbe::Measure(const wire::MeasureLinks& request) {
  wire::LinksMeasured answer;
  answer.set_request(request.request());
  if (const Status status = Check(request); !status.ok()) {
    answer.set_error(status.message());
    return answer;
  }
  comm::GroupOptions options{.rank = request.rank(), .members = {}, .peers = {1 - request.rank()}};
  for (const wire::Member& member : request.members()) {
    options.members.push_back({.name = member.name(), .address = member.address()});
  }
  const Time began = Now();
  const Deadline deadline = began + FromSeconds(std::min(request.seconds(), kLongestSeconds));
  for (int i = 0; i < request.transports_size(); ++i) {
    options.generation = request.request() + i;  // Both ends count alike, whatever fails here.
    options.transports = {request.transports(i)};
    options.route_timeout = kRoute;
    const Result<comm::Link> measured =
        MeasureOnce(*endpoint_, options, std::min<Deadline>(deadline, began + (i + 1) * kTrial));
    wire::LinksMeasured::Link& link = *answer.add_links();
    link.set_transport(request.transports(i));
    if (measured.ok()) {
      link.set_latency_seconds(measured->latency_seconds);
      link.set_bytes_per_second(measured->bytes_per_second);
    } else {
      link.set_error(measured.status().message());
    }
  }
  return answer;
}

void PairProbe::Stop() {
  endpoint_->Fence(std::numeric_limits<int64_t>::max());
}

}  // namespace heddle::elastic
