/// \file
/// An endpoint's side of the connections that it makes: which transports, in which order, and what
/// was tried instead of what.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "comm/cost/transport_choice.h"
#include "comm/endpoint/channel_factory.h"
#include "comm/endpoint/local_end.h"
#include "comm/group/group.h"
#include "comm/stream/event_loop.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// All that it is given outlives it.
class Dialer {
 public:
  Dialer(EventLoop& loop, LocalEnd& self, ChannelFactory& channels, metrics::Registry& metrics);

  /// Makes the connections that are this worker's to make; those of each pair are the lower rank's.
  /// What fails for good fails the group's forming. Thread: loop.
  void DialPeers(const std::shared_ptr<Group>& group, Deadline deadline);
  /// Exports what joins the pairs of a group that has formed, and why. Thread: any.
  void ExportPairs(const Group& group) HEDDLE_EXCLUDES(mutex_);

 private:
  struct Attempt {
    const Transport* transport = nullptr;
    Route route;
  };
  /// Over transports that may join a peer and reach it, best first; never none.
  using Attempts = std::vector<Attempt>;

  /// Which transports the pair of this worker and `peer` prefers.
  TransportChoice ChoiceFor(const Group& group, int peer) const;
  /// By `choice`, that of the pair. Errors: kInvalidArgument (an address that is none),
  /// kUnavailable (no transport reaches it).
  Result<Attempts> AttemptsTo(const Group& group,
                              int peer,
                              TrafficClass traffic_class,
                              const TransportChoice& choice) const;
  /// Makes the attempts in turn until one leads to a connection.
  void Dial(const std::shared_ptr<Group>& group,
            int peer,
            TrafficClass traffic_class,
            const Attempts& attempts,
            Deadline deadline);
  /// How often `route` could not be used for `reason`, and another port (`next_port`) or another
  /// transport was tried.
  metrics::Counter& Fallbacks(const Transport& transport,
                              const Route& route,
                              bool next_port,
                              StatusCode reason);
  /// Counts and, once a peer, logs why the second attempt follows the first.
  void NoteFallback(const Group& group, int peer, const Attempts& attempts, const Status& status);
  Hello HelloFor(const Group& group, int peer, TrafficClass traffic_class) const;

  EventLoop& loop_;
  LocalEnd& self_;
  ChannelFactory& channels_;
  metrics::Registry& metrics_;
  /// Peers and transports or routes. Loop thread only.
  std::set<std::pair<std::string, std::string>> fallbacks_logged_;

  Mutex mutex_;
  /// Pairs of the newest group, by transport and reason.
  std::map<std::pair<std::string, std::string>, int> pairs_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
