#include "comm/endpoint/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"

namespace heddle::comm {

namespace {

/// Handshakes that have not proved anything yet; beyond it the oldest is dropped.
constexpr size_t kHalfOpenLimit = 256;
/// Authentic diallers of generations that this worker has not come to yet.
constexpr size_t kHeldLimit = 4096;
/// Without descriptors the queue of diallers is looked at as often.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

metrics::Counter& Refused(metrics::Registry& metrics, VerdictCode reason) {
  return metrics.GetCounter("heddle_comm_refused_connections_total",
                            "Connections refused in the handshake.",
                            {{"reason", std::string(VerdictName(reason))}});
}

}  // namespace

// Pauses accepting, because the queue stays readable, and the loop would call AcceptAll again and
// again without effect.
void Acceptor::PauseAccepting(const Listening& listening, int error) {
  if (!std::exchange(descriptors_missed_, true)) {
    LogWarning("no connection can be accepted: {}; raise `ulimit -n` or free memory",
               ErrnoError(error, "accept").message());
  }
  loop_.Modify(listening.watch, listening.socket, 0);
  loop_.RunAt(After(kAcceptPause),
              [this, &listening] { loop_.Modify(listening.watch, listening.socket, EPOLLIN); });
}

Acceptor::Acceptor(EventLoop& loop,
                   LocalEnd& self,
                   Generations& generations,
                   ChannelFactory& channels,
                   metrics::Registry& metrics)
    : loop_(loop),
      self_(self),
      generations_(generations),
      channels_(channels),
      metrics_(metrics) {
  for (const VerdictCode reason : kRefusals) {
    Refused(metrics_, reason);
  }
  for (const auto& transport : self_.transports()) {
    const std::vector<Listener> listeners = transport->listeners();
    for (size_t i = 0; i < listeners.size(); ++i) {
      listening_.push_back(std::make_unique<Listening>(
          Listening{.transport = *transport, .number = i, .socket = listeners[i].socket}));
      Listening* const raw = listening_.back().get();
      raw->watch = loop_.Add(raw->socket, EPOLLIN, [this, raw](uint32_t) { AcceptAll(*raw); });
    }
  }
}

void Acceptor::AcceptAll(const Listening& listening) {
  for (size_t i = 0; i < kHalfOpenLimit; ++i) {
    UniqueFd socket(::accept4(listening.socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        // No descriptors: whoever proved nothing yet is dropped, and the queue is asked again
        // later.
        if (!half_open_.empty()) {
          half_open_.front()->Refuse(VerdictCode::kOverload);
        } else {
          PauseAccepting(listening, error);
        }
      }
      return;
    }
    if (half_open_.size() >= kHalfOpenLimit) {
      half_open_.front()->Refuse(VerdictCode::kOverload);
    }
    auto session = std::make_shared<AcceptSession>(loop_, *this, listening.transport,
                                                   listening.number, std::move(socket));
    half_open_.push_back(session);
    session->Start();
  }
}

void Acceptor::OnAuthentic(const Session& session) {
  half_open_.remove(session);
  const int64_t generation = session->hello().generation;
  if (generations_.IsStale(generation)) {
    session->Refuse(VerdictCode::kStaleGeneration);
  } else if (const auto group = generations_.Find(generation); group != nullptr) {
    Admit(session, *group);
  } else if (held_.size() < kHeldLimit) {
    held_.insert(session);  // The dialling worker is a little ahead of this one.
  } else {
    session->Refuse(VerdictCode::kOverload);
  }
}

void Acceptor::Admit(const Session& session, Group& group) {
  const Hello& hello = session->hello();
  const GroupOptions& options = group.options();
  const auto name = [&](int rank) {
    return Sha256(options.members[static_cast<size_t>(rank)].name);
  };
  if (hello.target != options.rank || !group.IsPeer(hello.source) || hello.source >= options.rank ||
      hello.traffic_class >= kTrafficClasses ||
      !SameDigest(hello.source_name, name(hello.source)) ||
      !SameDigest(hello.target_name, name(hello.target))) {
    session->Refuse(VerdictCode::kWrongPeer);
  } else if (const Identity& own = session->identity(); session->peer_uses_tls() != own.tls) {
    session->Refuse(VerdictCode::kWrongTls);
    // It is who we wait for, and will not come by another route.
    const std::string& peer = options.members[static_cast<size_t>(hello.source)].name;
    group.FailForming(UnauthenticatedError("refused {}: {}", peer, TlsMismatch(own.tls)));
  } else if (own.tls && !session->transport().traits().encrypts) {
    session->Refuse(VerdictCode::kWrongTls);
  } else if (group.IsAttached(hello.source, static_cast<TrafficClass>(hello.traffic_class))) {
    session->Refuse(VerdictCode::kDuplicate);
  } else {
    session->Welcome();
  }
}

void Acceptor::OnConnection(const Session& session, std::unique_ptr<Connection> connection) {
  Forget(session);
  const Hello& hello = session->hello();
  if (const auto group = generations_.Find(hello.generation); group != nullptr) {
    channels_.Attach(*group, hello.source, static_cast<TrafficClass>(hello.traffic_class),
                     std::move(connection));
  }
}

void Acceptor::OnGone(const Session& session, const Status& reason) {
  Forget(session);
  const Hello& hello = session->hello();
  const auto group = generations_.Find(hello.generation);
  if (reason.code() == StatusCode::kCancelled || group == nullptr) {
    return;
  }
  // The dialler counts it and goes on to its next attempt, or says that it has none.
  const std::string& name = group->options().members[static_cast<size_t>(hello.source)].name;
  const std::string route = RouteName(session->transport(), session->listener());
  if (failures_logged_.emplace(name, route).second) {
    LogWarning("{} came to nothing with {}: {}", route, name, reason.message());
  }
}

void Acceptor::Forget(const Session& session) {
  half_open_.remove(session);
  held_.erase(session);
}

void Acceptor::OnRefused(const Session& session, VerdictCode reason) {
  Forget(session);
  Refused(metrics_, reason).Add();
}

void Acceptor::ReviewHeld() {
  const std::set<Session> held = std::move(held_);
  held_.clear();
  for (const Session& session : held) {
    OnAuthentic(session);
  }
}

}  // namespace heddle::comm
