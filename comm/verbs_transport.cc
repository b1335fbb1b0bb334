// Verbs: RDMA between workers whose ports are of one kind. The handshake runs over TCP on the
// port's own address.
#include <utility>

#include <fmt/format.h>

#include "comm/tcp_socket.h"
#include "comm/transport.h"
#include "comm/verbs_device.h"
#include "comm/verbs_setup.h"

namespace heddle::comm {

namespace {

constexpr std::string_view kKey = "verbs";

/// "KIND/HOST:PORT": the kind of network.
std::string_view KindOf(std::string_view value) {
  return value.substr(0, value.find('/'));
}

class VerbsTransport final : public Transport {
 public:
  VerbsTransport(std::shared_ptr<VerbsDevice> device, TcpListener listener)
      : device_(std::move(device)),
        listener_(std::move(listener)) {}

  std::string_view name() const override { return kKey; }
  std::string address() const override {
    return fmt::format("{}/{}", RdmaKindName(device_->port().kind), listener_.address);
  }
  int listen_fd() const override { return listener_.socket.get(); }

  bool Reaches(const AddressParts& own, const AddressParts& peer) const override {
    const auto mine = own.find(std::string(kKey));
    const auto theirs = peer.find(std::string(kKey));
    return mine != own.end() && theirs != peer.end() &&
           KindOf(mine->second) == KindOf(theirs->second);
  }

  Result<UniqueFd> Dial(const AddressParts& peer) const override {
    const std::string& value = peer.at(std::string(kKey));
    return DialTcp(listener_.address, value.substr(value.find('/') + 1));
  }

  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                         Lane lane,
                                         bool dialled,
                                         const Digest& /*key*/) const override {
    return MakeVerbsSetup(device_, std::move(socket), lane, dialled);
  }

 private:
  const std::shared_ptr<VerbsDevice> device_;
  const TcpListener listener_;
};

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

std::string Whose(const EndpointOptions& options) {
  return options.rdma_device.empty() ? "" : " of device " + options.rdma_device;
}

/// Why none of `ports` will do.
std::string Objections(const std::vector<RdmaPort>& ports, const EndpointOptions& options) {
  std::vector<std::string> reasons;
  for (const RdmaPort& port : ports) {
    if (options.rdma_device.empty() || port.device == options.rdma_device) {
      reasons.push_back(fmt::format("{}/{}: {}", port.device, port.port, port.reason));
    }
  }
  return reasons.empty()
             ? fmt::format("no RDMA port{}", Whose(options))
             : fmt::format("no usable RDMA port{} ({})", Whose(options), fmt::join(reasons, "; "));
}

}  // namespace

bool BuiltWithVerbs() {
  return true;
}

Result<std::unique_ptr<Transport>> MakeVerbsTransport(const EndpointOptions& options) {
  if (options.rdma_device.empty() && IsLoopback(options.bind_host)) {
    return FailedPreconditionError("not for workers at a loopback address ({})", options.bind_host);
  }
  const std::vector<RdmaPort> ports = FindRdmaPorts();
  const auto port = ChooseRdmaPort(ports, options.rdma_device, options.bind_host);
  if (!port) {
    return UnavailableError("{}", Objections(ports, options));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto device, VerbsDevice::Open(*port));
  HEDDLE_ASSIGN_OR_RETURN(auto listener,
                          ListenTcp(port->ip.empty() ? options.bind_host : port->ip));
  return std::unique_ptr<Transport>(
      std::make_unique<VerbsTransport>(std::move(device), std::move(listener)));
}

}  // namespace heddle::comm
