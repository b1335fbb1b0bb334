/// \file
/// Makes the channels of an endpoint, which share its emulated link, its counters and its count of
/// open channels.
#pragma once

#include <memory>

#include "comm/group/group.h"
#include "comm/message/channel.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/traffic_class.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Makes the channels of an endpoint. Thread: any.
class ChannelFactory {
 public:
  explicit ChannelFactory(metrics::Registry& metrics);

  /// Attaches `connection` with `peer` to `group` as a channel, unless the group has that channel
  /// already or has ended.
  void Attach(Group& group,
              int peer,
              TrafficClass traffic_class,
              std::unique_ptr<Connection> connection);
  /// Creates the counters of a transport that may carry channels, so that they are exported as 0.
  void Begin(const Transport& transport);
  /// Implements Endpoint::SetLinkRate.
  void SetLinkRate(double bytes_per_second);
  /// Waits until no channel has a connection left, at most until `deadline`.
  void WaitForNone(Deadline deadline) { open_->WaitForNone(deadline); }

 private:
  metrics::Counter& Connections(const TransportTraits& traits, const std::string& port);

  metrics::Registry& metrics_;
  const std::shared_ptr<TokenBucket> outgoing_;
  const std::shared_ptr<TokenBucket> incoming_;
  const std::shared_ptr<OpenCount> open_;
};

}  // namespace heddle::comm
