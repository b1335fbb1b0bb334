#include "comm/endpoint/channel_factory.h"

#include <string>
#include <utility>

#include "base/thread.h"
#include "comm/cost/transport_traits.h"

namespace heddle::comm {

namespace {

/// A sender that was late sends what its link owes in one go; the receiver's link, which was idle
/// meanwhile, must not take that for a faster link.
constexpr Duration kIncomingCredit = std::chrono::milliseconds(20);

struct Traffic {
  metrics::Counter& sent;
  metrics::Counter& placed;
  metrics::Counter& received;
  metrics::Counter& lost;
};

// Traffic is counted by transport, and not by peer: among a thousand workers each may connect to
// each, and a million series would show little that the slowest pair's link does not.
Traffic TrafficOf(metrics::Registry& metrics, const std::string& transport) {
  const metrics::Labels labels{{"transport", transport}};
  return {
      .sent = metrics.GetCounter("heddle_comm_sent_bytes_total", "Bytes sent to other workers.",
                                 labels),
      .placed =
          metrics.GetCounter("heddle_comm_placed_bytes_total",
                             "Bytes sent from a shared buffer straight into a peer's.", labels),
      .received = metrics.GetCounter("heddle_comm_received_bytes_total",
                                     "Bytes received from other workers.", labels),
      .lost = metrics.GetCounter("heddle_comm_peer_lost_total", "Peers whose connection broke.")};
}

}  // namespace

ChannelFactory::ChannelFactory(metrics::Registry& metrics)
    : metrics_(metrics),
      outgoing_(std::make_shared<TokenBucket>()),
      incoming_(std::make_shared<TokenBucket>(kIncomingCredit)),
      open_(std::make_shared<OpenCount>()) {}

void ChannelFactory::SetLinkRate(double bytes_per_second) {
  outgoing_->SetRate(bytes_per_second, Now());
  incoming_->SetRate(bytes_per_second, Now());
}

void ChannelFactory::Begin(const Transport& transport) {
  TrafficOf(metrics_, transport.name());
  for (const Listener& listener : transport.listeners()) {
    if (!listener.port.empty()) {
      Connections(transport.traits(), listener.port);
    }
  }
}

metrics::Counter& ChannelFactory::Connections(const TransportTraits& traits,
                                              const std::string& port) {
  return metrics_.GetCounter(
      "heddle_comm_rail_connections_total",
      fmt::format("Connections, two a pair, over each of this machine's {} ports.", traits.title),
      {{"port", port}});
}

void ChannelFactory::Attach(Group& group,
                            int peer,
                            TrafficClass traffic_class,
                            std::unique_ptr<Connection> connection) {
  const std::string& name = group.options().members[static_cast<size_t>(peer)].name;
  const ConnectionInfo info = connection->info();
  const Traffic traffic = TrafficOf(metrics_, info.transport);
  ChannelOptions options;
  options.peer = peer;
  options.traffic_class = traffic_class;
  options.peer_name = name;
  options.generation = group.options().generation;
  options.operation_timeout = group.options().operation_timeout;
  // On a machine with one core the network makes no progress while a thread polls for messages.
  options.may_spin = group.segments().members_here() <= Cores() && Cores() > 1;
  options.outgoing = outgoing_;
  options.incoming = incoming_;
  options.sent_bytes = &traffic.sent;
  options.placed_bytes = &traffic.placed;
  options.received_bytes = &traffic.received;
  options.lost = &traffic.lost;
  options.open = open_;
  if (!info.port.empty()) {
    Connections(*FindTransport(info.transport), info.port).Add();
  }
  group.Attach(std::move(connection), std::move(options));
}

}  // namespace heddle::comm
