#include "elastic/worker/measure/local_links.h"

#include <algorithm>
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

wire::MeasureLinks RequestFor(int64_t number,
                              int rank,
                              const std::vector<std::string>& addresses,
                              const std::vector<std::string>& transports) {
  wire::MeasureLinks request;
  request.set_request(number);
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

Result<std::vector<wire::Links::Transport>> MeasurePair(int64_t number,
                                                        double first_rate,
                                                        double second_rate,
                                                        const std::vector<std::string>& transports,
                                                        const comm::EndpointConfig& config) {
  HEDDLE_ASSIGN_OR_RETURN(const auto first, ProbeOf(first_rate, config));
  HEDDLE_ASSIGN_OR_RETURN(const auto second, ProbeOf(second_rate, config));
  const std::vector<std::string> addresses = {first->address(), second->address()};
  wire::LinksMeasured back;
  Thread other("link-measure",
               [&] { back = second->Measure(RequestFor(number, 1, addresses, transports)); });
  const wire::LinksMeasured there = first->Measure(RequestFor(number, 0, addresses, transports));
  other.Join();
  return JoinAnswers(there, back, transports);
}

Result<wire::Links> MeasureNow(const std::vector<double>& rates,
                               const std::vector<std::string>& transports,
                               const comm::EndpointConfig& config) {
  wire::Links links;
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
  int64_t number = 1;
  for (const auto& [a, a_rate] : rate_of) {
    for (const auto& [b, b_rate] : rate_of) {
      if (a > b || (a == b && workers[a] < 2)) {
        continue;
      }
      HEDDLE_ASSIGN_OR_RETURN(const auto joined,
                              MeasurePair(number, a_rate, b_rate, transports, config));
      number += kMostMeasuredTransports;
      if (!joined.empty()) {
        AddPair(a, b, joined, links);
      }
    }
  }
  return links;
}

}  // namespace

Result<wire::Links> LocalLinks(KeptFiles& files,
                               const std::vector<double>& rates,
                               const std::vector<std::string>& transports,
                               const comm::EndpointConfig& config) {
  if (transports.empty()) {
    return wire::Links();
  }
  const auto workers = static_cast<int>(rates.size());
  const auto check = [&](std::string_view json) { return LinksFromJson(json, workers).status(); };
  const auto measure = [&]() -> Result<std::string> {
    HEDDLE_ASSIGN_OR_RETURN(const wire::Links links, MeasureNow(rates, transports, config));
    return LinksToJson(links);
  };
  const std::string key =
      fmt::format("{} {} {}", fmt::join(rates, ","), fmt::join(transports, ","), config.tls);
  HEDDLE_ASSIGN_OR_RETURN(const KeptText kept, files.Get("links", key, check, measure));
  return LinksFromJson(kept.text, workers);
}

}  // namespace heddle::elastic
