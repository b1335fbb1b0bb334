#include "comm/endpoint/dialer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "comm/endpoint/session.h"

namespace heddle::comm {

Dialer::Dialer(EventLoop& loop,
               LocalEnd& self,
               ChannelFactory& channels,
               metrics::Registry& metrics)
    : loop_(loop),
      self_(self),
      channels_(channels),
      metrics_(metrics) {
  for (const auto& transport : self_.transports()) {
    for (const StatusCode reason : {StatusCode::kUnavailable, StatusCode::kDeadlineExceeded}) {
      Fallbacks(*transport, {}, /*next_port=*/false, reason);
      const std::vector<Listener> listeners = transport->listeners();
      for (size_t i = 0; i < listeners.size(); ++i) {
        if (!listeners[i].port.empty()) {
          Fallbacks(*transport, {.listener = i}, /*next_port=*/true, reason);
        }
      }
    }
  }
}

metrics::Counter& Dialer::Fallbacks(const Transport& transport,
                                    const Route& route,
                                    bool next_port,
                                    StatusCode reason) {
  const std::string text(StatusCodeName(reason));
  return next_port
             ? metrics_.GetCounter(
                   "heddle_comm_rail_fallbacks_total",
                   fmt::format("Connections that could not use this {} port and tried another "
                               "pair of ports.",
                               transport.traits().title),
                   {{"port", transport.listeners()[route.listener].port}, {"reason", text}})
             : metrics_.GetCounter("heddle_comm_fallbacks_total",
                                   "Connections, two a pair, that could not use their best "
                                   "transport and took the next.",
                                   {{"transport", transport.name()}, {"reason", text}});
}

void Dialer::DialPeers(const std::shared_ptr<Group>& group, Deadline deadline) {
  for (const int peer : group->options().peers) {
    const bool dials = peer > group->options().rank;
    if (!dials && group->options().transports.empty()) {
      continue;  // It may reach us though we do not reach it.
    }
    for (const TrafficClass traffic_class : kEachTrafficClass) {
      const Result<Attempts> attempts =
          AttemptsTo(*group, peer, traffic_class, ChoiceFor(*group, peer));
      if (!attempts.ok()) {
        const std::string& name = group->options().members[static_cast<size_t>(peer)].name;
        group->FailForming(attempts.status().WithContext("connecting to {}", name));
        break;
      }
      if (dials) {
        Dial(group, peer, traffic_class, *attempts, deadline);
      }
    }
  }
}

Hello Dialer::HelloFor(const Group& group, int peer, TrafficClass traffic_class) const {
  const GroupOptions& options = group.options();
  Hello hello;
  hello.traffic_class = static_cast<uint32_t>(traffic_class);
  hello.generation = options.generation;
  hello.source = options.rank;
  hello.target = peer;
  hello.job = self_.identity().job;
  hello.source_name = Sha256(options.members[static_cast<size_t>(options.rank)].name);
  hello.target_name = Sha256(options.members[static_cast<size_t>(peer)].name);
  hello.nonce = MakeNonce();
  return hello;
}

TransportChoice Dialer::ChoiceFor(const Group& group, int peer) const {
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  const std::vector<std::string>& list = group.options().transports;
  return ChooseTransport({.list = list.empty() ? self_.Allowed() : list}, member.transports);
}

Result<Dialer::Attempts> Dialer::AttemptsTo(const Group& group,
                                            int peer,
                                            TrafficClass traffic_class,
                                            const TransportChoice& choice) const {
  const size_t number =
      ConnectionNumber(group.options().rank, peer, traffic_class == TrafficClass::kUrgent);
  const GroupMember& member = group.options().members[static_cast<size_t>(peer)];
  Attempts attempts;
  HEDDLE_ASSIGN_OR_RETURN(const AddressParts address, ParseAddress(member.address));
  std::vector<std::string> objections;
  const bool tls = self_.identity().tls;
  for (const std::string& name : choice.order) {
    const Transport* const transport = self_.Find(name);
    if (transport == nullptr) {
      objections.push_back(fmt::format("{} ({})", name, self_.WhyAbsent(name)));
    } else if (tls && !transport->traits().encrypts) {
      objections.push_back(fmt::format("{} (not encrypted, and comm.tls is on)", name));
    } else if (const auto routes = transport->RoutesTo(self_.address(), address, number);
               routes.empty()) {
      objections.push_back(fmt::format("{} (cannot reach it)", name));
    } else {
      for (const Route& route : routes) {
        attempts.push_back({.transport = transport, .route = route});
      }
    }
  }
  if (attempts.empty()) {
    return UnavailableError("no transport leads there: {}", fmt::join(objections, ", "));
  }
  // The transport that has joined the pair before gets the rest of the time if no other does now:
  // the others may never reach the peer, and the timeout of the first attempt is shorter.
  const Attempt first = attempts.front();
  if (choice.cheapest && first.transport->name() == choice.transport &&
      attempts.back().transport != first.transport) {
    attempts.push_back(first);
  }
  return attempts;
}

void Dialer::Dial(const std::shared_ptr<Group>& group,
                  int peer,
                  TrafficClass traffic_class,
                  const Attempts& attempts,
                  Deadline deadline) {
  const auto session = std::make_shared<DialSession>(
      loop_, *attempts.front().transport, attempts.front().route, self_.identity(),
      HelloFor(*group, peer, traffic_class), deadline,
      [this, weak = std::weak_ptr(group), peer, traffic_class, attempts,
       deadline](Result<std::unique_ptr<Connection>> result) {
        const auto alive = weak.lock();
        if (alive == nullptr || alive->ended()) {
          return;
        }
        if (result.ok()) {
          channels_.Attach(*alive, peer, traffic_class, *std::move(result));
        } else if (attempts.size() > 1 && result.status().code() != StatusCode::kAborted &&
                   result.status().code() != StatusCode::kUnauthenticated) {
          NoteFallback(*alive, peer, attempts, result.status());
          Dial(alive, peer, traffic_class, {attempts.begin() + 1, attempts.end()}, deadline);
        } else {
          const std::string& name = alive->options().members[static_cast<size_t>(peer)].name;
          alive->FailForming(result.status().WithContext("connecting to {}", name));
        }
      });
  // A port that does not answer must leave time for the next route; a busy process' port
  // answers.
  const bool last = attempts.size() == 1;
  const Duration patience = group->options().route_timeout;
  session->Start(last ? deadline : After(patience), last ? kHandshakeTimeout : patience);
}

void Dialer::NoteFallback(const Group& group,
                          int peer,
                          const Attempts& attempts,
                          const Status& status) {
  const Transport& transport = *attempts[0].transport;
  const Route& route = attempts[0].route;
  transport.Avoid(route);
  const bool next_port = attempts[1].transport == &transport;
  Fallbacks(transport, route, next_port, status.code()).Add();
  // Every generation would say the same again.
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const std::string what = next_port ? RouteName(transport, route.listener) : transport.name();
  if (fallbacks_logged_.emplace(name, what).second) {
    LogWarning("{} is not used with {}: {}", what, name, status.message());
  }
}

void Dialer::ExportPairs(const Group& group) {
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
    metrics_
        .GetGauge("heddle_comm_pair_transport",
                  "Pairs of this worker in the newest group, by the transport that joins them.",
                  {{"transport", labels.first}, {"reason", labels.second}})
        .Set(count);
  }
}

}  // namespace heddle::comm
