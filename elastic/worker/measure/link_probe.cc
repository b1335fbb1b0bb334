#include "elastic/worker/measure/link_probe.h"

#include <algorithm>

#include "base/thread.h"

namespace heddle::elastic {
namespace {

constexpr Duration kBound = std::chrono::seconds(20);

// The best of so many: contention on a busy host only ever makes a link look worse than it is.
constexpr uint64_t kRounds = 4;

// Both ends call it, `other` is the other end's rank.
Result<comm::Link> BestOfRounds(comm::Endpoint& endpoint, comm::Communicator& group, int other) {
  Result<comm::Link> best = UnavailableError("not measured");
  for (uint64_t round = 1; round <= kRounds; ++round) {
    HEDDLE_ASSIGN_OR_RETURN(const comm::Link link,
                            endpoint.MeasureLink(group, other, round, After(kBound)));
    if (!best.ok()) {
      best = link;
    }
    best->latency_seconds = std::min(best->latency_seconds, link.latency_seconds);
    best->bytes_per_second = std::max(best->bytes_per_second, link.bytes_per_second);
  }
  return best;
}

}  // namespace

Result<comm::Link> ProbeOwnLink(comm::Endpoint& endpoint, const comm::EndpointOptions& options) {
  // Both ends speak for a job of their own, so that nobody else can join.
  metrics::Registry unused;
  const std::string job =
      fmt::format("link-probe-{}-{}", options.config.worker, options.config.secret);
  comm::EndpointConfig mirrored = options.config;
  mirrored.worker = "mirror";
  mirrored.job = mirrored.secret = job;
  HEDDLE_ASSIGN_OR_RETURN(const auto mirror,
                          comm::Endpoint::Create({.config = mirrored,
                                                  .bind_host = options.bind_host,
                                                  .open = options.open,
                                                  .transport_options = options.transport_options,
                                                  .metrics = &unused}));
  comm::EndpointConfig probed = options.config;
  probed.job = probed.secret = job;
  HEDDLE_RETURN_IF_ERROR(endpoint.Configure(probed));
  const std::vector<comm::GroupMember> members = {
      {.name = options.config.worker, .address = endpoint.address()},
      {.name = "mirror", .address = mirror->address()}};
  Result<comm::Link> other = UnavailableError("not measured");
  Thread thread("link-probe", [&] {
    auto group = mirror->Connect({.generation = 0, .rank = 1, .members = members, .peers = {0}},
                                 After(kBound));
    if (group.ok()) {
      other = BestOfRounds(*mirror, **group, 0);
    }
  });
  Result<comm::Link> link = UnavailableError("not measured");
  auto group = endpoint.Connect({.generation = 0, .rank = 0, .members = members, .peers = {1}},
                                After(kBound));
  if (group.ok()) {
    link = BestOfRounds(endpoint, **group, 1);
    if (link.ok()) {
      link->transport = (*group)->transport(1);
    }
  } else {
    link = group.status();
  }
  thread.Join();
  if (group.ok()) {
    (*group)->Abort(CancelledError("the link is measured"));
  }
  HEDDLE_RETURN_IF_ERROR(endpoint.Configure(options.config));
  return link;
}

}  // namespace heddle::elastic
