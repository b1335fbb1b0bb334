// TCP: the transport between hosts.
#include "comm/transport/tcp/tcp_transport.h"

#include <utility>

#include "comm/transport/ip_socket.h"
#include "comm/transport/tcp/tcp_setup.h"
#include "comm/transport/tcp/tcp_stripes.h"
#include "comm/transport/tcp/tls_connection.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpListener listener, int streams)
      : listener_(std::move(listener)),
        streams_(streams) {}

  std::string_view name() const override { return "tcp"; }
  std::string address() const override { return listener_.address; }
  std::vector<int> doors() const override { return {listener_.socket.get()}; }

  std::vector<Way> WaysTo(const AddressParts& /*own*/,
                          const AddressParts& peer,
                          size_t /*number*/) const override {
    const auto theirs = peer.find("tcp");
    return theirs == peer.end() ? std::vector<Way>() : std::vector<Way>{{.to = theirs->second}};
  }

  Result<UniqueFd> Dial(const Way& way) const override {
    return DialTcp(listener_.address, way.to);
  }

  std::unique_ptr<ConnectionSetup> Begin(
      size_t /*door*/, UniqueFd socket, Lane lane, bool dialled, const Digest& key) const override {
    return MakeTcpSetup(std::move(socket), lane, dialled,
                        {.streams = streams_, .own = listener_.address, .key = key});
  }
  bool CanEncrypt() const override { return true; }
  std::unique_ptr<ConnectionSetup> BeginEncrypted(
      size_t /*door*/, UniqueFd socket, Lane lane, bool dialled, const Digest& key) const override {
    return MakeTlsSetup(std::move(socket), lane, dialled, key);
  }

 private:
  const TcpListener listener_;
  const int streams_;
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeTcpTransport(const EndpointOptions& options) {
  if (options.tcp_streams < 0 || options.tcp_streams > kMostStripes) {
    return InvalidArgumentError("{} TCP streams a connection: between 0 and {}",
                                options.tcp_streams, kMostStripes);
  }
  HEDDLE_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(options.bind_host));
  const int streams =
      options.tcp_streams > 0 ? options.tcp_streams : TcpStreamsFor(options.bind_host);
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(std::move(listener), streams));
}

}  // namespace heddle::comm
