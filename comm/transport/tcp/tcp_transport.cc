// TCP: the transport between hosts.
#include <charconv>
#include <utility>

#include "comm/transport/ip_socket.h"
#include "comm/transport/registry.h"
#include "comm/transport/tcp/tcp_setup.h"
#include "comm/transport/tcp/tcp_stripes.h"
#include "comm/transport/tcp/tls_connection.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

constexpr const char* kName = "tcp";

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpListener listener, int streams)
      : Transport(kName),
        listener_(std::move(listener)),
        streams_(streams) {}

  std::string address() const override { return listener_.address; }
  std::vector<Listener> listeners() const override { return {{.socket = listener_.socket.get()}}; }

  std::vector<Route> RoutesTo(const AddressParts& /*own*/,
                              const AddressParts& peer,
                              size_t /*number*/) const override {
    const auto theirs = peer.find(kName);
    return theirs == peer.end() ? std::vector<Route>() : std::vector<Route>{{.to = theirs->second}};
  }

  Result<UniqueFd> Dial(const Route& route) const override {
    return DialTcp(listener_.address, route.to);
  }

  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                         const SetupOptions& options) const override {
    if (options.encrypted) {
      return MakeTlsSetup(std::move(socket), options.traffic_class, options.dialled, options.key);
    }
    return MakeTcpSetup(std::move(socket), options.traffic_class, options.dialled,
                        {.streams = streams_, .own = listener_.address, .key = options.key});
  }

 private:
  const TcpListener listener_;
  const int streams_;
};

/// Option "streams": sockets of each connection (tcp_stripes.h), 1 to 8; 0: as many as the network
/// interface of `bind_host` is fast for. A pair uses what both ends have; with TLS, 1. Errors:
/// kInvalidArgument (the option, or bind_host), kResourceExhausted.
Result<std::unique_ptr<Transport>> Open(const TransportSettings& settings) {
  const std::string wanted = settings.option("streams");
  int streams = 0;
  const char* const end = wanted.data() + wanted.size();
  const auto parsed = std::from_chars(wanted.data(), end, streams);
  if ((!wanted.empty() && (parsed.ec != std::errc() || parsed.ptr != end)) || streams < 0 ||
      streams > kMaxStripes) {
    return InvalidArgumentError("{} TCP streams a connection: between 0 and {}", wanted,
                                kMaxStripes);
  }
  HEDDLE_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(settings.bind_host));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(
      std::move(listener), streams > 0 ? streams : TcpStreamsFor(settings.bind_host)));
}

const RegisteredTransport kRegistered(kName, &Open);

}  // namespace
}  // namespace heddle::comm
