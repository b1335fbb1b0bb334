// The endpoint's side of connections that it makes: which transports, in which order, and what was
// tried instead of what.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "comm/endpoint/endpoint_impl.h"

namespace heddle::comm {

std::string RouteName(const Transport& transport, size_t listener) {
  const std::string port = transport.listeners()[listener].port;
  return port.empty() ? transport.name() : fmt::format("{} over {}", transport.name(), port);
}

ChannelOptions EndpointImpl::OptionsFor(const Group& group,
                                        int peer,
                                        TrafficClass traffic_class,
                                        Connection& connection) {
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const ConnectionInfo info = connection.info();
  const std::string& kind = info.transport;
  const metrics::Labels labels{{"transport", kind}, {"peer", name}};
  ChannelOptions options;
  options.peer = peer;
  options.traffic_class = traffic_class;
  options.peer_name = name;
  options.generation = group.options().generation;
  options.operation_timeout = group.options().operation_timeout;
  // On a machine of one core the network stands still while somebody looks for its messages.
  options.may_spin = group.members_here() <= Cores() && Cores() > 1;
  options.outgoing = outgoing_;
  options.incoming = incoming_;
  options.sent_bytes = &options_.metrics->GetCounter("heddle_comm_sent_bytes_total",
                                                     "Bytes sent to a peer.", labels);
  options.placed_bytes = &options_.metrics->GetCounter(
      "heddle_comm_placed_bytes_total", "Bytes sent from a shared buffer straight into a peer's.",
      {{"transport", kind}});
  options.received_bytes = &options_.metrics->GetCounter("heddle_comm_received_bytes_total",
                                                         "Bytes received from a peer.", labels);
  options.lost =
      &options_.metrics->GetCounter("heddle_comm_peer_lost_total", "Peers whose connection broke.");
  options.open = open_;
  if (!info.port.empty()) {
    options_.metrics
        ->GetCounter("heddle_comm_rail_connections_total",
                     fmt::format("Connections, two a pair, over each of this machine's {} ports.",
                                 FindTransport(kind)->title),
                     {{"port", info.port}})
        .Add();
  }
  return options;
}

Hello EndpointImpl::HelloFor(const Group& group, int peer, TrafficClass traffic_class) const {
  const GroupOptions& options = group.options();
  Hello hello;
  hello.traffic_class = static_cast<uint32_t>(traffic_class);
  hello.generation = options.generation;
  hello.source = options.rank;
  hello.target = peer;
  hello.job = identity().job;
  hello.source_name = Sha256(options.members[static_cast<size_t>(options.rank)].name);
  hello.target_name = Sha256(options.members[static_cast<size_t>(peer)].name);
  hello.nonce = MakeNonce();
  return hello;
}

std::vector<std::string> EndpointImpl::Allowed() const {
  const MutexLock lock(mutex_);
  if (!allowed_.empty()) {
    return allowed_;
  }
  return TransportNames();
}

TransportChoice EndpointImpl::ChoiceFor(const Group& group, int peer) const {
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  const std::vector<std::string>& list = group.options().transports;
  return ChooseTransport({.list = list.empty() ? Allowed() : list}, member.transports);
}

Result<EndpointImpl::Attempts> EndpointImpl::AttemptsTo(const Group& group,
                                                        int peer,
                                                        TrafficClass traffic_class,
                                                        const TransportChoice& choice) const {
  const size_t number =
      ConnectionNumber(group.options().rank, peer, traffic_class == TrafficClass::kUrgent);
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  Attempts attempts;
  HEDDLE_ASSIGN_OR_RETURN(const AddressParts address, ParseAddress(member.address));
  std::vector<std::string> objections;
  const bool tls = identity().tls;
  for (const std::string& name : choice.order) {
    const auto transport = std::find_if(transports_.begin(), transports_.end(),
                                        [&](const auto& other) { return other->name() == name; });
    if (transport == transports_.end()) {
      objections.push_back(fmt::format("{} ({})", name, absent_.at(name)));
    } else if (tls && !(*transport)->traits().encrypts) {
      objections.push_back(fmt::format("{} (not encrypted, and comm.tls is on)", name));
    } else if (const auto routes = (*transport)->RoutesTo(own_, address, number); routes.empty()) {
      objections.push_back(fmt::format("{} (cannot reach it)", name));
    } else {
      for (const Route& route : routes) {
        attempts.push_back({.transport = transport->get(), .route = route});
      }
    }
  }
  if (attempts.empty()) {
    return UnavailableError("no transport leads there: {}", fmt::join(objections, ", "));
  }
  // What has joined them before gets what is left of the time when nothing else does now: the
  // others may be routes that never lead there, and the first attempt may not take so long.
  const Attempt first = attempts.front();
  if (choice.cheapest && first.transport->name() == choice.transport &&
      attempts.back().transport != first.transport) {
    attempts.push_back(first);
  }
  return attempts;
}

void EndpointImpl::Dial(const std::shared_ptr<Group>& group,
                        int peer,
                        TrafficClass traffic_class,
                        const Attempts& attempts,
                        Deadline deadline) {
  const auto session = std::make_shared<DialSession>(
      *loop_, *attempts.front().transport, attempts.front().route, identity(),
      HelloFor(*group, peer, traffic_class), deadline,
      [this, weak = std::weak_ptr(group), peer, traffic_class, attempts,
       deadline](Result<std::unique_ptr<Connection>> result) {
        const auto alive = weak.lock();
        if (alive == nullptr || alive->ended()) {
          return;
        }
        if (result.ok()) {
          auto options = OptionsFor(*alive, peer, traffic_class, **result);
          alive->Attach(*std::move(result), std::move(options));
        } else if (attempts.size() > 1 && result.status().code() != StatusCode::kAborted &&
                   result.status().code() != StatusCode::kUnauthenticated) {
          NoteFallback(*alive, peer, attempts, result.status());
          Dial(alive, peer, traffic_class, {attempts.begin() + 1, attempts.end()}, deadline);
        } else {
          const std::string& name = alive->options().members[static_cast<size_t>(peer)].name;
          alive->FailForming(result.status().WithContext("connecting to {}", name));
        }
      });
  // A port that nobody answers for must leave time for the next route; a busy process' port
  // answers.
  const bool last = attempts.size() == 1;
  const Duration patience = group->options().route_timeout;
  session->Start(last ? deadline : After(patience), last ? kHandshakeTimeout : patience);
}

void EndpointImpl::NoteFallback(const Group& group,
                                int peer,
                                const Attempts& attempts,
                                const Status& status) {
  const Transport& transport = *attempts[0].transport;
  const Route& route = attempts[0].route;
  transport.Avoid(route);
  const bool next_port = attempts[1].transport == &transport;
  const std::string reason(StatusCodeName(status.code()));
  metrics::Counter& counter =
      next_port
          ? options_.metrics->GetCounter(
                "heddle_comm_rail_fallbacks_total",
                fmt::format("Connections that could not use this {} port and tried another pair of "
                            "ports.",
                            transport.traits().title),
                {{"port", transport.listeners()[route.listener].port}, {"reason", reason}})
          : options_.metrics->GetCounter(
                "heddle_comm_fallbacks_total",
                "Connections, two a pair, that could not use their best transport and "
                "took the next.",
                {{"transport", transport.name()}, {"reason", reason}});
  counter.Add();
  // Every generation would say the same again.
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const std::string what = next_port ? RouteName(transport, route.listener) : transport.name();
  if (fallbacks_logged_.emplace(name, what).second) {
    LogWarning("{} is not used with {}: {}", what, name, status.message());
  }
}

void EndpointImpl::ExportPairs(const Group& group) {
  std::map<std::pair<std::string, std::string>, int> pairs;
  for (const int peer : group.options().peers) {
    const std::string transport = group.transport(peer);
    const TransportChoice choice = ChoiceFor(group, peer);
    const Result<Attempts> attempts = AttemptsTo(group, peer, TrafficClass::kUrgent, choice);
    const bool expected = attempts.ok() && attempts->front().transport->name() == transport;
    const bool cheapest = choice.cheapest && choice.transport == transport;
    const bool first = !choice.cheapest && expected;
    ++pairs[{transport, cheapest ? "cheapest" : first ? "first" : "fallback"}];
  }
  const MutexLock lock(mutex_);
  for (auto& [labels, count] : pairs_) {
    count = 0;
  }
  for (const auto& [labels, count] : pairs) {
    pairs_[labels] = count;
  }
  for (const auto& [labels, count] : pairs_) {
    options_.metrics
        ->GetGauge("heddle_comm_pair_transport",
                   "Pairs of this worker in the newest group, by the transport that joins them.",
                   {{"transport", labels.first}, {"reason", labels.second}})
        .Set(count);
  }
}

}  // namespace heddle::comm
