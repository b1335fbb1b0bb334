/// \file
/// An endpoint's side of the connections that others make: listening, handshakes, and the groups
/// that they lead to.
#pragma once

#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/endpoint/channel_factory.h"
#include "comm/endpoint/generations.h"
#include "comm/endpoint/local_end.h"
#include "comm/endpoint/session.h"
#include "comm/stream/event_loop.h"

namespace heddle::comm {

/// Thread: loop only, but for the constructor. All that it is given outlives it.
class Acceptor final : public AcceptSession::Owner {
 public:
  /// Listens at once.
  Acceptor(EventLoop& loop,
           LocalEnd& self,
           Generations& generations,
           ChannelFactory& channels,
           metrics::Registry& metrics);

  /// Looks again at the diallers who were early: a generation has begun, or is over.
  void ReviewHeld();

 private:
  using Session = std::shared_ptr<AcceptSession>;
  struct Listening {
    const Transport& transport;
    const size_t number;  ///< Among the transport's listeners.
    const int socket;
    uint64_t watch = 0;  ///< The loop's.
  };

  Identity identity() const override { return self_.identity(); }
  void OnAuthentic(const Session& session) override;
  void OnConnection(const Session& session, std::unique_ptr<Connection> connection) override;
  void OnRefused(const Session& session, VerdictCode reason) override;
  void OnGone(const Session& session, const Status& reason) override;

  void AcceptAll(const Listening& listening);
  void PauseAccepting(const Listening& listening, int error);
  void Admit(const Session& session, Group& group);
  void Forget(const Session& session);

  EventLoop& loop_;
  LocalEnd& self_;
  Generations& generations_;
  ChannelFactory& channels_;
  metrics::Registry& metrics_;
  std::vector<std::unique_ptr<Listening>> listening_;
  bool descriptors_missed_ = false;  ///< Has been logged.
  std::list<Session> half_open_;
  std::set<Session> held_;
  std::set<std::pair<std::string, std::string>> failures_logged_;  ///< Peers and routes.
};

}  // namespace heddle::comm
