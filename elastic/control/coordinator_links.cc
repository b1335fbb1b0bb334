// Links by pair: who is measured with whom (LinkPolicy says how much), and what is known of them.
// Nothing here stops a job: what fails or is late is planned with by its workers' own ends.
#include <algorithm>

#include "elastic/control/coordinator_state.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

// A request is followed by the next of its coordinator after the generations of its groups.
constexpr int64_t kGroupsOfRequest = kMostMeasuredTransports;
constexpr int kLifeShift = 32;
constexpr size_t kMostKept = 4096;

bool IsSound(const wire::LinksMeasured::Link& link) {
  return link.error().empty() && IsLinkSound(link.latency_seconds(), link.bytes_per_second());
}

// What a worker measured of one transport; null when it does not join the two.
const wire::LinksMeasured::Link* Find(const wire::LinksMeasured& answer, const std::string& name) {
  const auto found =
      std::find_if(answer.links().begin(), answer.links().end(),
                   [&](const auto& link) { return link.transport() == name && IsSound(link); });
  return found == answer.links().end() ? nullptr : &*found;
}

// Why nothing joins a worker to the other, in its words, cut short: they come from outside.
std::string Reason(const std::string& worker, const wire::LinksMeasured& answer) {
  std::string reason = answer.error();
  for (const auto& link : answer.links()) {
    if (link.error().empty() && IsSound(link)) {
      continue;
    }
    reason += fmt::format(
        "{}{}: {}", reason.empty() ? "" : "; ", link.transport().substr(0, 16),
        link.error().empty() ? "figures that no link has" : link.error().substr(0, 120));
    if (reason.size() > 400) {
      break;
    }
  }
  return reason.empty() ? "" : worker + ": " + reason.substr(0, 400);
}

// Each end may have its own.
std::string Reason(const Measurement& measurement) {
  const std::string there = Reason(measurement.workers[0], *measurement.answers[0]);
  const std::string back = Reason(measurement.workers[1], *measurement.answers[1]);
  return there + (there.empty() || back.empty() ? "" : "; ") + back;
}

std::string ToJson(const std::vector<wire::Links::Transport>& transports) {
  std::string text = "{";
  for (const auto& link : transports) {
    text += fmt::format(R"({}{}: {{"latency_seconds": {:.3g}, "there": {:.4g}, "back": {:.4g}}})",
                        text.size() > 1 ? ", " : "", QuoteJson(link.name()),
                        (link.latency_seconds() + link.back_latency_seconds()) / 2,
                        link.bytes_per_second(), link.back_bytes_per_second());
  }
  return text + "}";
}

}  // namespace

Place Coordinator::State::PlaceOf(const Worker& worker) const {
  return fmt::format("{} {} {}", worker.host, worker.network,
                     worker.emulation.link_bytes_per_second());
}

bool Coordinator::State::LinksSettled(Time now) {
  if (policy().links.transports.empty()) {
    return true;
  }
  if (std::exchange(places_changed, false)) {
    FindUnmeasured();
    for (const auto& [host, there] : places_of_host) {
      freed_hosts.insert(host);
    }
  }
  if (!freed_hosts.empty()) {
    StartMeasuring(now);
    freed_hosts.clear();
  }
  if (unmeasured.empty() && measuring.empty()) {
    links_until.reset();
    links_late = false;
    return true;
  }
  if (!links_until && !links_late) {
    links_until = now + policy().links.wait;
  }
  return links_late;
}

// Places come and go (a network at every start of a container): what was measured of one is kept
// for its return, but not without bound.
void Coordinator::State::ForgetOldPlaces() {
  if (measured.size() <= kMostKept) {
    return;
  }
  std::set<Place> here;
  for (const auto& [name, worker] : workers) {
    here.insert(PlaceOf(worker));
  }
  std::erase_if(measured, [&](const auto& entry) {
    return here.count(entry.first.first) == 0 || here.count(entry.first.second) == 0;
  });
}

void Coordinator::State::FindUnmeasured() {
  ForgetOldPlaces();
  places.clear();
  places_of_host.clear();
  for (const auto& [name, worker] : workers) {
    if (worker.welcomed && worker.seen && !worker.draining && !worker.profile_json.empty() &&
        !worker.probe_address.empty()) {
      places[PlaceOf(worker)].push_back(name);
    }
  }
  std::vector<Place> order;
  std::map<Place, size_t> index;
  for (const auto& [place, names] : places) {
    index[place] = order.size();
    order.push_back(place);
    places_of_host[workers.at(names.front()).host].push_back(place);
  }
  std::set<PlacePair> known;
  for (const auto& [pair, transports] : measured) {
    known.insert(pair);
  }
  for (const auto& [request, measurement] : measuring) {
    known.insert(measurement.places);
  }
  std::vector<int> partners(order.size());
  for (const auto& [a, b] : known) {
    if (a != b && index.count(a) > 0 && index.count(b) > 0) {
      ++partners[index[a]];
      ++partners[index[b]];
    }
  }
  unmeasured.clear();
  for (const Place& place : order) {
    if (places[place].size() > 1 && known.count({place, place}) == 0) {
      unmeasured[place].push_back(place);
    }
  }
  const auto in_want = [&](size_t i) { return partners[i] < policy().links.partners; };
  // Each distance gives rounds of disjoint pairs, and a share of its work to every place.
  for (size_t distance = 1; 2 * distance <= order.size(); ++distance) {
    bool wanted = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t j = (i + distance) % order.size();
      const bool again = 2 * distance == order.size() && i >= distance;  // From the other side.
      wanted = wanted || in_want(i);
      if (again || (!in_want(i) && !in_want(j)) ||
          known.count(std::minmax(order[i], order[j])) > 0) {
        continue;
      }
      unmeasured[order[i]].push_back(order[j]);
      unmeasured[order[j]].push_back(order[i]);
      ++partners[i];
      ++partners[j];
    }
    if (!wanted) {
      return;
    }
  }
}

// Starts every measurement of the freed hosts that would disturb none, those inside a host first.
// Only theirs: a look at all that is left, whenever one ends, would cost the square of the cluster.
void Coordinator::State::StartMeasuring(Time now) {
  std::set<std::string> busy = BusyHosts();
  for (const bool inside : {true, false}) {
    for (const std::string& host : freed_hosts) {
      for (const Place& place : places_of_host[host]) {
        const auto left = unmeasured.find(place);
        const auto partners = left == unmeasured.end() ? std::vector<Place>() : left->second;
        for (const Place& partner : partners) {
          const PlacePair pair = std::minmax(place, partner);
          const Worker* first = MeasurerOf(pair.first, nullptr);
          const Worker* second = MeasurerOf(pair.second, first);
          if (inside == (place == partner) && first != nullptr && second != nullptr &&
              busy.count(first->host) == 0 && busy.count(second->host) == 0) {
            busy.insert(first->host);
            busy.insert(second->host);
            StartMeasurement(pair, *first, *second, now);
          }
        }
      }
    }
  }
}

// The first worker of a place that can be told, but for `other`.
const Worker* Coordinator::State::MeasurerOf(const Place& place, const Worker* other) const {
  for (const std::string& name : places.at(place)) {
    const auto found = workers.find(name);
    if (found != workers.end() && &found->second != other && found->second.connection != 0) {
      return &found->second;
    }
  }
  return nullptr;
}

void Coordinator::State::StartMeasurement(const PlacePair& pair,
                                          const Worker& first,
                                          const Worker& second,
                                          Time now) {
  for (const auto& [place, partner] : {pair, PlacePair(pair.second, pair.first)}) {
    const auto left = unmeasured.find(place);
    if (left != unmeasured.end() && std::erase(left->second, partner) > 0 && left->second.empty()) {
      unmeasured.erase(left);
    }
  }
  if (!life_durable) {
    SaveState(now);
  }
  const int64_t request = (life << kLifeShift) + kGroupsOfRequest * next_measurement++;
  Measurement& measurement = measuring[request];
  measurement.places = pair;
  measurement.workers = {first.name, second.name};
  measurement.deadline = now + policy().links.timeout;
  SendTo(first, MakeMeasureLinks(request, 0));
  SendTo(second, MakeMeasureLinks(request, 1));
}

wire::MeasureLinks Coordinator::State::MakeMeasureLinks(int64_t request, int rank) const {
  wire::MeasureLinks message;
  message.set_request(request);
  message.set_rank(rank);
  // The answers are to be here before they are no longer waited for.
  message.set_seconds(0.8 * Seconds(policy().links.timeout));
  for (const std::string& name : measuring.at(request).workers) {
    wire::Member& member = *message.add_members();
    member.set_name(name);
    member.set_address(workers.at(name).probe_address);
  }
  for (const std::string& transport : policy().links.transports) {
    message.add_transports(transport);
  }
  return message;
}

void Coordinator::State::OnLinksMeasured(Worker& worker, const wire::LinksMeasured& message) {
  const auto found = measuring.find(message.request());
  if (found == measuring.end()) {
    return;
  }
  Measurement& measurement = found->second;
  for (const size_t rank : {0U, 1U}) {
    if (measurement.workers[rank] == worker.name) {
      measurement.answers[rank] = message;
    }
  }
  if (measurement.answers[0] && measurement.answers[1]) {
    EndMeasurement(message.request(), "");
  }
}

// Both have answered, or `failure` says what happened instead.
void Coordinator::State::EndMeasurement(int64_t request, const std::string& failure) {
  const Measurement measurement = std::move(measuring.extract(request).mapped());
  for (const std::string& name : measurement.workers) {
    freed_hosts.insert(workers.at(name).host);
  }
  std::vector<wire::Links::Transport> joined;
  std::string reason = failure;
  if (failure.empty()) {
    const wire::LinksMeasured& there = *measurement.answers[0];
    const wire::LinksMeasured& back = *measurement.answers[1];
    for (const std::string& name : policy().links.transports) {
      const auto* to = elastic::Find(there, name);
      const auto* from = elastic::Find(back, name);
      if (to != nullptr && from != nullptr) {
        wire::Links::Transport& transport = joined.emplace_back();
        transport.set_name(name);
        transport.set_latency_seconds(to->latency_seconds());
        transport.set_bytes_per_second(to->bytes_per_second());
        transport.set_back_latency_seconds(from->latency_seconds());
        transport.set_back_bytes_per_second(from->bytes_per_second());
      }
    }
    reason = joined.empty() ? Reason(measurement) : "";
    measured[measurement.places] = joined;
  } else if (failure == "timeout") {
    measured[measurement.places] = {};
  }
  const std::string result = !failure.empty() ? failure : joined.empty() ? "failed" : "ok";
  Log("links_measured", {{"from", measurement.workers[0]},
                         {"to", measurement.workers[1]},
                         {"result", result},
                         {"transports", RawJson{ToJson(joined)}},
                         {"reason", reason}});
}

void Coordinator::State::CheckMeasurements(Time now) {
  std::vector<int64_t> late;
  for (const auto& [request, measurement] : measuring) {
    if (now >= measurement.deadline) {
      late.push_back(request);
    }
  }
  for (const int64_t request : late) {
    EndMeasurement(request, "timeout");
  }
  if (links_until && now >= *links_until) {
    links_until.reset();
    links_late = true;
    size_t left = measuring.size();
    for (const auto& entry : unmeasured) {
      left += static_cast<size_t>(
          std::count_if(entry.second.begin(), entry.second.end(),
                        [&](const Place& partner) { return entry.first <= partner; }));
    }
    Log("warning", {{"message", fmt::format("the links of {} pairs are not measured after {:.0f} s",
                                            left, Seconds(policy().links.wait))}});
  }
}

// Another worker of its place may take its part.
void Coordinator::State::ForgetMeasurementsOf(const std::string& worker) {
  std::vector<int64_t> over;
  for (const auto& [request, measurement] : measuring) {
    if (measurement.workers[0] == worker || measurement.workers[1] == worker) {
      over.push_back(request);
    }
  }
  for (const int64_t request : over) {
    EndMeasurement(request, "lost");
  }
  places_changed = true;
}

wire::Links Coordinator::State::LinksOf(const std::vector<std::string>& names) const {
  wire::Links links;
  std::map<Place, int32_t> numbers;
  for (const std::string& name : names) {
    const auto number = static_cast<int32_t>(numbers.size());
    links.add_places(numbers.emplace(PlaceOf(workers.at(name)), number).first->second);
  }
  for (const auto& [places_of_pair, transports] : measured) {
    const auto a = numbers.find(places_of_pair.first);
    const auto b = numbers.find(places_of_pair.second);
    if (a == numbers.end() || b == numbers.end() || transports.empty()) {
      continue;
    }
    const bool turned = a->second > b->second;
    wire::Links::Pair& pair = *links.add_pairs();
    pair.set_a(turned ? b->second : a->second);
    pair.set_b(turned ? a->second : b->second);
    for (const wire::Links::Transport& transport : transports) {
      wire::Links::Transport& entry = *pair.add_transports();
      entry = transport;
      if (turned) {
        entry.set_latency_seconds(transport.back_latency_seconds());
        entry.set_bytes_per_second(transport.back_bytes_per_second());
        entry.set_back_latency_seconds(transport.latency_seconds());
        entry.set_back_bytes_per_second(transport.bytes_per_second());
      }
    }
  }
  return links;
}

}  // namespace heddle::elastic
