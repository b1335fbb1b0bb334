#include "elastic/worker/measure/local_links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/thread.h"
#include "elastic/planning/links_json.h"
#include "elastic/protocol/link_figures.h"
#include "elastic/worker/measure/pair_probe.h"

namespace heddle::elastic {
namespace {

constexpr double kSeconds = 4;  ///< Bound of one measurement.

Result<std::unique_ptr<PairProbe>> ProbeOf(double rate, const comm::EndpointConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(auto probe, PairProbe::Create({}));
  probe->SetJob(config);
  probe->SetLinkRate(rate);
  return probe;
}

wire::MeasureLinks RequestFor(int rank,
                              const std::vector<std::string>& addresses,
                              const std::vector<std::string>& transports) {
  wire::MeasureLinks request;
  request.set_request(1);  // Of two endpoints that measure nothing else.
  request.set_rank(rank);
  request.set_seconds(kSeconds);
  for (const std::string& address : addresses) {
    wire::Member& member = *request.add_members();
    member.set_name(address);
    member.set_address(address);
  }
  request.mutable_transports()->Add(transports.begin(), transports.end());
  return request;
}

Result<std::vector<wire::Links::Transport>> MeasurePair(double first_rate,
                                                        double second_rate,
                                                        const std::vector<std::string>& transports,
                                                        const comm::EndpointConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const auto first, ProbeOf(first_rate, config));
  HEDDLE_ASSIGN_OR_RETURN(const auto second, ProbeOf(second_rate, config));
  const std::vector<std::string> addresses = {first->address(), second->address()};
  wire::LinksMeasured back;
  Thread other("link-measure",
               [&] { back = second->Measure(RequestFor(1, addresses, transports)); });
  const wire::LinksMeasured there = first->Measure(RequestFor(0, addresses, transports));
  other.Join();
  return JoinAnswers(there, back, transports);
}

// Of the pair of workers with these rates, whichever of them is asked first.
Result<wire::Links> KeptPair(KeptFiles& files,
                             double lower_rate,
                             double higher_rate,
                             const std::vector<std::string>& transports,
                             const comm::EndpointConfig& config) {
  const auto measure = [&]() -> Result<std::string> {
    HEDDLE_ASSIGN_OR_RETURN(const auto joined,
                            MeasurePair(lower_rate, higher_rate, transports, config));
    if (joined.empty()) {
      return UnavailableError("no transport joins two workers of this machine");
    }
    wire::Links links;
    links.add_places(0);
    links.add_places(1);
    AddPair(0, 1, joined, links);
    return LinksToJson(links);
  };
  const auto check = [](std::string_view json) {
    const Result<wire::Links> links = LinksFromJson(json, 2);
    return links.ok() && links->pairs_size() != 1 ? InvalidArgumentError("not one pair")
                                                  : links.status();
  };
  const std::string key =
      fmt::format("{} {} {} {}", lower_rate, higher_rate, fmt::join(transports, ","), config.tls);
  HEDDLE_ASSIGN_OR_RETURN(const KeptText kept, files.Get("pair", key, check, measure));
  return LinksFromJson(kept.text, 2);
}

// From the worker with the first rate, and back.
Result<std::vector<wire::Links::Transport>> LocalPair(KeptFiles& files,
                                                      double first_rate,
                                                      double second_rate,
                                                      const std::vector<std::string>& transports,
                                                      const comm::EndpointConfig& config) {
  const auto [lower, higher] = std::minmax(first_rate, second_rate);
  HEDDLE_ASSIGN_OR_RETURN(const wire::Links kept,
                          KeptPair(files, lower, higher, transports, config));
  wire::Links turned;
  const auto& pair = kept.pairs(0).transports();
  AddPair(first_rate > second_rate ? 1 : 0, first_rate > second_rate ? 0 : 1,
          {pair.begin(), pair.end()}, turned);
  const auto& transports_of = turned.pairs(0).transports();
  return std::vector(transports_of.begin(), transports_of.end());
}

}  // namespace

Result<wire::Links> LocalLinks(KeptFiles& files,
                               const std::vector<double>& rates,
                               const std::vector<std::string>& transports,
                               const comm::EndpointConfig& config) {
  wire::Links links;
  if (transports.empty()) {
    return links;
  }
  std::map<double, int32_t> places;
  std::map<int32_t, double> rate_of;
  std::map<int32_t, int> workers;
  for (const double rate : rates) {
    const auto number = static_cast<int32_t>(places.size());
    const int32_t place = places.emplace(rate, number).first->second;
    links.add_places(place);
    rate_of[place] = rate;
    ++workers[place];
  }
  for (const auto& [a, a_rate] : rate_of) {
    for (const auto& [b, b_rate] : rate_of) {
      if (a > b || (a == b && workers[a] < 2)) {
        continue;
      }
      const auto pair = LocalPair(files, a_rate, b_rate, transports, config);
      if (pair.ok()) {
        AddPair(a, b, *pair, links);
      } else if (pair.status().code() != StatusCode::kUnavailable) {
        return pair.status();
      }
    }
  }
  return links;
}

wire::LinksMeasured AnswerFromKept(KeptFiles& files,
                                   const wire::MeasureLinks& request,
                                   const comm::EndpointConfig& config) {
  wire::LinksMeasured answer;
  answer.set_request(request.request());
  const auto is_rate = [](double rate) { return std::isfinite(rate) && rate >= 0; };
  if (!std::ranges::all_of(request.machine_rates(), is_rate)) {
    answer.set_error("no rates of links");
    return answer;
  }
  const bool is_first = request.rank() == 0;
  const auto pair = LocalPair(files, request.machine_rates(is_first ? 0 : 1),
                              request.machine_rates(is_first ? 1 : 0),
                              {request.transports().begin(), request.transports().end()}, config);
  if (!pair.ok()) {
    answer.set_error(pair.status().message());
    return answer;
  }
  for (const wire::Links::Transport& transport : *pair) {
    wire::LinksMeasured::Link& link = *answer.add_links();
    link.set_transport(transport.name());
    link.set_latency_seconds(transport.latency_seconds());
    link.set_bytes_per_second(transport.bytes_per_second());
  }
  return answer;
}

}  // namespace heddle::elastic
