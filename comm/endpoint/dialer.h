/// \file
/// The dialling side of an endpoint: the transports and routes that it tries for each peer, their
/// order, and the fallbacks.
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

/// The constructor's arguments outlive it.
class Dialer {
 public:
  Dialer(EventLoop& loop, LocalEnd& self, ChannelFactory& channels, metrics::Registry& metrics);

  /// Makes the connections that this worker has to make; the lower rank of each pair makes the
  /// pair's. When all attempts for a connection have failed, forming the group fails. Thread: loop.
  void DialPeers(const std::shared_ptr<Group>& group, Deadline deadline);
  /// Exports the metric of the transports that join the pairs of a formed group, and why. Thread:
  /// any.
  void ExportPairs(const Group& group) HEDDLE_EXCLUDES(mutex_);

 private:
  struct Attempt {
    const Transport* transport = nullptr;
    Route route;
  };
  /// Attempts over the transports that may join a peer and reach it, best first; never empty.
  using Attempts = std::vector<Attempt>;

  /// The order of transports for the pair of this worker and `peer`.
  TransportChoice ChoiceFor(const Group& group, int peer) const;
  /// The attempts to connect to `peer`, in the order of the pair's `choice`. Errors:
  /// kInvalidArgument (an invalid address), kUnavailable (no transport reaches the peer).
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
  /// The counter of fallbacks from `route` for `reason` to another port (`next_port`) or another
  /// transport.
  metrics::Counter& Fallbacks(const Transport& transport,
                              const Route& route,
                              bool next_port,
                              StatusCode reason);
  /// Counts the fallback from the first attempt to the second, and logs it once for each peer and
  /// route.
  void NoteFallback(const Group& group, int peer, const Attempts& attempts, const Status& status);
  Hello HelloFor(const Group& group, int peer, TrafficClass traffic_class) const;

  EventLoop& loop_;
  LocalEnd& self_;
  ChannelFactory& channels_;
  metrics::Registry& metrics_;
  /// Pairs of peer and transport or route whose fallback has been logged. Loop thread only.
  std::set<std::pair<std::string, std::string>> fallbacks_logged_;

  Mutex mutex_;
  /// Number of pairs of the newest group, by transport and reason.
  std::map<std::pair<std::string, std::string>, int> pairs_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
