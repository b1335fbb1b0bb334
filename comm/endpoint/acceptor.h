/// \file
/// The accepting side of an endpoint: listening, handshakes, and attaching the connections to their
/// groups.
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

/// Accepts the connections of an endpoint. Thread: loop only, except for the constructor. The
/// constructor's arguments outlive it.
class Acceptor final : public AcceptSession::Owner {
 public:
  /// Starts listening.
  Acceptor(EventLoop& loop,
           LocalEnd& self,
           Generations& generations,
           ChannelFactory& channels,
           metrics::Registry& metrics);

  /// Admits or refuses the diallers that were held because they were early. Called when a
  /// generation has begun or ended.
  void ReviewHeld();

 private:
  using Session = std::shared_ptr<AcceptSession>;
  struct Listening {
    const Transport& transport;
    const size_t number;  ///< Index among the transport's listeners.
    const int socket;
    uint64_t watch = 0;  ///< Number of the loop's watch.
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
  bool descriptors_missed_ = false;  ///< The lack of descriptors has been logged.
  std::list<Session> half_open_;
  std::set<Session> held_;
  std::set<std::pair<std::string, std::string>> failures_logged_;  ///< Pairs of peer and route.
};

}  // namespace heddle::comm
