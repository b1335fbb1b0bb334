#include "elastic/control/links/link_survey.h"

#include <algorithm>

#include <fmt/format.h>

#include "elastic/control/deadline.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

// The next request of a coordinator is numbered after the generations of this one's groups.
constexpr int64_t kGroupsOfRequest = kMaxMeasuredTransports;
constexpr int kRestartShift = 32;
constexpr size_t kMaxKept = 4096;

}  // namespace

Place PlaceOf(const Worker& worker) {
  return fmt::format("{} {} {}", worker.host, worker.network,
                     worker.emulation.link_bytes_per_second());
}

void LinkSurvey::WorkerJoined(const Worker& worker) {
  std::erase_if(measured_, [place = PlaceOf(worker)](const auto& entry) {
    return entry.second.empty() && (entry.first.first == place || entry.first.second == place);
  });
}

void LinkSurvey::MeasureAgain(const std::vector<std::string>& names, const Roster& roster) {
  std::set<Place> places;
  for (const std::string& name : names) {
    places.insert(PlaceOf(roster.at(name)));
  }
  for (const auto& [pair, transports] : measured_) {
    if (places.count(pair.first) > 0 && places.count(pair.second) > 0) {
      doubtful_.insert(pair);
    }
  }
  places_changed_ = true;
}

void LinkSurvey::Store(DurableState& durable) {
  durable.restarts = restarts_;
  restarts_durable_ = true;
}

bool LinkSurvey::Settled(const Roster& roster, const LinkPolicy& policy, Time now, Outbox& out) {
  if (policy.transports.empty()) {
    return true;
  }
  if (std::exchange(places_changed_, false)) {
    FindUnmeasured(roster, policy.partners);
    for (const auto& [host, there] : places_of_host_) {
      freed_hosts_.insert(host);
    }
  }
  if (!freed_hosts_.empty()) {
    StartMeasuring(roster, policy, now, out);
    freed_hosts_.clear();
  }
  if (unmeasured_.empty() && measuring_.empty()) {
    until_.reset();
    late_ = false;
    return true;
  }
  if (!until_ && !late_) {
    until_ = now + policy.wait;
  }
  return late_;
}

// Places come and go (a container has a new network at every start). Figures of a place that is
// gone are kept for its return, but not without bound.
void LinkSurvey::ForgetOldPlaces(const Roster& roster) {
  if (measured_.size() <= kMaxKept) {
    return;
  }
  std::set<Place> here;
  for (const auto& [name, worker] : roster.workers()) {
    here.insert(PlaceOf(worker));
  }
  std::erase_if(measured_, [&](const auto& entry) {
    return here.count(entry.first.first) == 0 || here.count(entry.first.second) == 0;
  });
  std::erase_if(doubtful_, [&](const PlacePair& pair) { return measured_.count(pair) == 0; });
}

void LinkSurvey::FindUnmeasured(const Roster& roster, int most_partners) {
  ForgetOldPlaces(roster);
  places_.clear();
  places_of_host_.clear();
  for (const auto& [name, worker] : roster.workers()) {
    if (worker.IsCandidate() && !worker.probe_address.empty()) {
      places_[PlaceOf(worker)].push_back(name);
    }
  }
  std::vector<Place> order;
  std::map<Place, size_t> index;
  for (const auto& [place, names] : places_) {
    index[place] = order.size();
    order.push_back(place);
    places_of_host_[roster.at(names.front()).host].push_back(place);
  }
  std::set<PlacePair> known;
  for (const auto& [pair, transports] : measured_) {
    if (doubtful_.count(pair) == 0) {
      known.insert(pair);
    }
  }
  for (const auto& [request, measurement] : measuring_) {
    known.insert(measurement.places);
  }
  std::vector<int> partners(order.size());
  for (const auto& [a, b] : known) {
    if (a != b && index.count(a) > 0 && index.count(b) > 0) {
      ++partners[index[a]];
      ++partners[index[b]];
    }
  }
  unmeasured_.clear();
  for (const Place& place : order) {
    if (places_[place].size() > 1 && known.count({place, place}) == 0) {
      unmeasured_[place].push_back(place);
    }
  }
  const auto in_want = [&](size_t i) { return partners[i] < most_partners; };
  // Each distance gives rounds of disjoint pairs, and a share of its work to every place.
  for (size_t distance = 1; 2 * distance <= order.size(); ++distance) {
    bool wanted = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t j = (i + distance) % order.size();
      // The pair was looked at from the other side.
      const bool again = 2 * distance == order.size() && i >= distance;
      wanted = wanted || in_want(i);
      if (again || (!in_want(i) && !in_want(j)) ||
          known.count(std::minmax(order[i], order[j])) > 0) {
        continue;
      }
      unmeasured_[order[i]].push_back(order[j]);
      unmeasured_[order[j]].push_back(order[i]);
      ++partners[i];
      ++partners[j];
    }
    if (!wanted) {
      return;
    }
  }
}

// Starts every measurement of the freed hosts that disturbs no other, those inside a host first. It
// looks at the freed hosts only: a look at all pairs that are left, whenever one ends, would cost
// the square of the cluster's size.
void LinkSurvey::StartMeasuring(const Roster& roster,
                                const LinkPolicy& policy,
                                Time now,
                                Outbox& out) {
  std::set<std::string> busy = BusyHosts(roster);
  busy.merge(ProfilingHosts(roster));
  for (const bool inside : {true, false}) {
    for (const std::string& host : freed_hosts_) {
      for (const Place& place : places_of_host_[host]) {
        const auto left = unmeasured_.find(place);
        const auto partners = left == unmeasured_.end() ? std::vector<Place>() : left->second;
        for (const Place& partner : partners) {
          const PlacePair pair = std::minmax(place, partner);
          const Worker* first = MeasurerOf(pair.first, nullptr, roster);
          const Worker* second = MeasurerOf(pair.second, first, roster);
          if (inside == (place == partner) && first != nullptr && second != nullptr &&
              busy.count(first->host) == 0 && busy.count(second->host) == 0) {
            busy.insert(first->host);
            busy.insert(second->host);
            Measurement measurement;
            measurement.places = pair;
            measurement.workers = {first->name, second->name};
            measurement.deadline = now + policy.timeout;
            Start(std::move(measurement), roster, policy, out);
          }
        }
      }
    }
  }
}

// The first connected worker of a place other than `other`; null if there is none.
const Worker* LinkSurvey::MeasurerOf(const Place& place,
                                     const Worker* other,
                                     const Roster& roster) const {
  for (const std::string& name : places_.at(place)) {
    const Worker* worker = roster.Find(name);
    if (worker != nullptr && worker != other && worker->connection != 0) {
      return worker;
    }
  }
  return nullptr;
}

void LinkSurvey::Start(Measurement measurement,
                       const Roster& roster,
                       const LinkPolicy& policy,
                       Outbox& out) {
  const PlacePair& pair = measurement.places;
  for (const auto& [place, partner] : {pair, PlacePair(pair.second, pair.first)}) {
    const auto left = unmeasured_.find(place);
    if (left != unmeasured_.end() && std::erase(left->second, partner) > 0 &&
        left->second.empty()) {
      unmeasured_.erase(left);
    }
  }
  if (!restarts_durable_) {
    out.Persist();
  }
  const int64_t request = (restarts_ << kRestartShift) + kGroupsOfRequest * next_measurement_++;
  const auto& [first, second] = (measuring_[request] = std::move(measurement)).workers;
  out.Tell(roster.at(first).connection, MakeRequest(request, 0, roster, policy));
  out.Tell(roster.at(second).connection, MakeRequest(request, 1, roster, policy));
}

wire::MeasureLinks LinkSurvey::MakeRequest(int64_t request,
                                           int rank,
                                           const Roster& roster,
                                           const LinkPolicy& policy) const {
  wire::MeasureLinks message;
  message.set_request(request);
  message.set_rank(rank);
  // The replies must arrive before the measurement's deadline.
  message.set_seconds(0.8 * Seconds(policy.timeout));
  const Measurement& measurement = measuring_.at(request);
  for (const std::string& name : measurement.workers) {
    wire::Member& member = *message.add_members();
    member.set_name(name);
    member.set_address(roster.at(name).probe_address);
  }
  for (const std::string& transport : policy.transports) {
    message.add_transports(transport);
  }
  const Worker& first = roster.at(measurement.workers[0]);
  const Worker& second = roster.at(measurement.workers[1]);
  if (first.host == second.host && first.network == second.network &&
      doubtful_.count(measurement.places) == 0) {
    message.add_machine_rates(first.emulation.link_bytes_per_second());
    message.add_machine_rates(second.emulation.link_bytes_per_second());
  }
  return message;
}

// Another worker of the place may repeat the measurement.
void LinkSurvey::Forget(const std::string& worker,
                        const Roster& roster,
                        const LinkPolicy& policy,
                        Outbox& out) {
  std::vector<int64_t> over;
  for (const auto& [request, measurement] : measuring_) {
    if (measurement.workers[0] == worker || measurement.workers[1] == worker) {
      over.push_back(request);
    }
  }
  for (const int64_t request : over) {
    EndMeasurement(request, "lost", roster, policy, out);
  }
  places_changed_ = true;
}

std::optional<Time> LinkSurvey::NextDeadline() const {
  std::optional<Time> next = until_;
  for (const auto& [request, measurement] : measuring_) {
    Earlier(next, measurement.deadline);
  }
  return next;
}

void LinkSurvey::Resend(const Worker& worker,
                        const Roster& roster,
                        const LinkPolicy& policy,
                        Outbox& out) const {
  for (const auto& [request, measurement] : measuring_) {
    for (const int rank : {0, 1}) {
      if (measurement.workers[static_cast<size_t>(rank)] == worker.name) {
        out.Tell(worker.connection, MakeRequest(request, rank, roster, policy));
      }
    }
  }
}

std::set<std::string> LinkSurvey::BusyHosts(const Roster& roster) const {
  std::set<std::string> busy;
  for (const auto& [request, measurement] : measuring_) {
    for (const std::string& name : measurement.workers) {
      busy.insert(roster.at(name).host);
    }
  }
  return busy;
}

Status LinkSurvey::Check(const Roster& roster) const {
  std::set<std::string> hosts;
  for (const auto& [request, measurement] : measuring_) {
    std::set<std::string> own;
    for (const std::string& name : measurement.workers) {
      const Worker* worker = roster.Find(name);
      if (worker == nullptr) {
        return InternalError("links of {} are measured_, which is gone", name);
      }
      own.insert(worker->host);
    }
    for (const std::string& host : own) {
      if (!hosts.insert(host).second) {
        return InternalError("host {} is in two measurements", host);
      }
    }
  }
  return Status::Ok();
}

wire::Links LinkSurvey::LinksOf(const std::vector<std::string>& names, const Roster& roster) const {
  wire::Links links;
  std::map<Place, int32_t> numbers;
  for (const std::string& name : names) {
    const auto number = static_cast<int32_t>(numbers.size());
    links.add_places(numbers.emplace(PlaceOf(roster.at(name)), number).first->second);
  }
  for (const auto& [places_of_pair, transports] : measured_) {
    const auto a = numbers.find(places_of_pair.first);
    const auto b = numbers.find(places_of_pair.second);
    if (a != numbers.end() && b != numbers.end() && !transports.empty()) {
      AddPair(a->second, b->second, transports, links);
    }
  }
  return links;
}

}  // namespace heddle::elastic
