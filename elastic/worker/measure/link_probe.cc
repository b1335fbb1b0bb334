#include "elastic/worker/measure/link_probe.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/thread.h"

namespace heddle::elastic {
namespace {

constexpr Duration kBound = std::chrono::seconds(20);

constexpr uint64_t kRounds = 5;

// Measures the link to rank `other`; both ends call it.
Result<std::vector<comm::Link>> MeasureRounds(comm::Endpoint& endpoint,
                                              comm::Communicator& group,
                                              int other) {
  std::vector<comm::Link> rounds;
  for (uint64_t round = 1; round <= kRounds; ++round) {
    HEDDLE_ASSIGN_OR_RETURN(comm::Link link,
                            endpoint.MeasureLink(group, other, round, After(kBound)));
    rounds.push_back(std::move(link));
  }
  return rounds;
}

struct Middle {
  double median = 0;
  double spread = 0;  // Half of the interquartile range.
};

Middle MiddleOf(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t last = values.size() - 1;
  return {.median = values[last / 2], .spread = (values[last - last / 4] - values[last / 4]) / 2};
}

Result<MeasuredLink> MeasureOwnLink(const comm::EndpointOptions& options) {
  metrics::Registry unused;
  comm::EndpointOptions probed = options;
  probed.metrics = &unused;
  // Both ends use a job of their own, so that no other endpoint can join.
  probed.config.job = probed.config.secret =
      fmt::format("link-probe-{}-{}", options.config.worker, options.config.secret);
  comm::EndpointOptions mirrored = probed;
  mirrored.config.worker = "mirror";
  mirrored.link_bytes_per_second = 0;
  HEDDLE_ASSIGN_OR_RETURN(const auto endpoint, comm::Endpoint::Create(probed));
  HEDDLE_ASSIGN_OR_RETURN(const auto mirror, comm::Endpoint::Create(mirrored));
  const std::vector<comm::GroupMember> members = {
      {.name = options.config.worker, .address = endpoint->address()},
      {.name = "mirror", .address = mirror->address()}};
  Status other = UnavailableError("not measured");
  Thread thread("link-probe", [&] {
    auto group = mirror->Connect({.generation = 0, .rank = 1, .members = members, .peers = {0}},
                                 After(kBound));
    other = group.ok() ? MeasureRounds(*mirror, **group, 0).status() : group.status();
  });
  auto group = endpoint->Connect({.generation = 0, .rank = 0, .members = members, .peers = {1}},
                                 After(kBound));
  Result<std::vector<comm::Link>> rounds =
      group.ok() ? MeasureRounds(*endpoint, **group, 1) : group.status();
  thread.Join();
  if (group.ok()) {
    (*group)->Abort(CancelledError("the link is measured"));
  }
  HEDDLE_RETURN_IF_ERROR(rounds.status());
  HEDDLE_RETURN_IF_ERROR(other);
  MeasuredLink link = MedianOf(*rounds);
  link.measured_at = WallClockSeconds();
  return link;
}

// The options that decide how fast an endpoint is, without its worker's identity.
std::string KeyOf(const comm::EndpointOptions& options) {
  std::string key = fmt::format("{} {} {} {} {}", options.bind_host, options.link_bytes_per_second,
                                options.config.tls, fmt::join(options.config.transports, ","),
                                fmt::join(options.open, ","));
  for (const auto& [transport, values] : options.transport_options) {
    for (const auto& [name, value] : values) {
      key += fmt::format("\n{} {} {}", transport, name, value);
    }
  }
  return key;
}

}  // namespace

MeasuredLink MedianOf(const std::vector<comm::Link>& rounds) {
  std::vector<double> latencies;
  std::vector<double> rates;
  for (const comm::Link& round : rounds) {
    latencies.push_back(round.latency_seconds);
    rates.push_back(round.bytes_per_second);
  }
  const Middle latency = MiddleOf(std::move(latencies));
  const Middle rate = MiddleOf(std::move(rates));
  MeasuredLink measured{.link = rounds.front(),
                        .latency_spread_seconds = latency.spread,
                        .bytes_per_second_spread = rate.spread};
  measured.link.latency_seconds = latency.median;
  measured.link.bytes_per_second = rate.median;
  return measured;
}

Result<MeasuredLink> OwnLink(KeptFiles& files, const comm::EndpointOptions& options) {
  const auto check = [](std::string_view json) { return LinkFromJson(json).status(); };
  const auto measure = [&]() -> Result<std::string> {
    HEDDLE_ASSIGN_OR_RETURN(const MeasuredLink link, MeasureOwnLink(options));
    return LinkToJson(link);
  };
  HEDDLE_ASSIGN_OR_RETURN(const KeptText kept, files.Get("link", KeyOf(options), check, measure));
  return LinkFromJson(kept.text);
}

}  // namespace heddle::elastic
