/// \file
/// What all channels of an endpoint share: its emulated link, its counters, its count of open ones.
#pragma once

#include <memory>

#include "comm/group/group.h"
#include "comm/message/channel.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/traffic_class.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Thread: any.
class ChannelFactory {
 public:
  explicit ChannelFactory(metrics::Registry& metrics);

  /// Attaches `connection` with `peer` to `group` as a channel, unless it has one or has ended.
  void Attach(Group& group,
              int peer,
              TrafficClass traffic_class,
              std::unique_ptr<Connection> connection);
  /// A transport that may carry channels: what it carries is counted from 0 on.
  void Begin(const Transport& transport);
  /// Endpoint's.
  void SetLinkRate(double bytes_per_second);
  /// Until no channel has a connection left.
  void WaitForNone(Deadline deadline) { open_->WaitForNone(deadline); }

 private:
  metrics::Counter& Connections(const TransportTraits& traits, const std::string& port);

  metrics::Registry& metrics_;
  const std::shared_ptr<TokenBucket> outgoing_;
  const std::shared_ptr<TokenBucket> incoming_;
  const std::shared_ptr<OpenCount> open_;
};

}  // namespace heddle::comm
