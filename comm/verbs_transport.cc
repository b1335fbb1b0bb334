// Verbs: RDMA between workers whose ports are of one kind. The handshake runs over TCP on the
// port's own address.
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
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

  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket, bool dialled) const override {
    return MakeVerbsSetup(device_, std::move(socket), dialled);
  }

 private:
  const std::shared_ptr<VerbsDevice> device_;
  const TcpListener listener_;
};

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

Result<std::unique_ptr<Transport>> Make(const EndpointOptions& options) {
  const auto port = ChooseRdmaPort(FindRdmaPorts(), options.rdma_device, options.bind_host);
  if (!port) {
    return UnavailableError("no active RDMA port{}{} with an address",
                            options.rdma_device.empty() ? "" : " of device ", options.rdma_device);
  }
  HEDDLE_ASSIGN_OR_RETURN(auto device, VerbsDevice::Open(*port));
  HEDDLE_ASSIGN_OR_RETURN(auto listener,
                          ListenTcp(port->ip.empty() ? options.bind_host : port->ip));
  return std::unique_ptr<Transport>(
      std::make_unique<VerbsTransport>(std::move(device), std::move(listener)));
}

}  // namespace

std::unique_ptr<Transport> MakeVerbsTransport(const EndpointOptions& options) {
  if (options.rdma_device.empty() && IsLoopback(options.bind_host)) {
    return nullptr;
  }
  auto made = Make(options);
  if (made.ok()) {
    return *std::move(made);
  }
  static std::atomic<bool> told = false;
  if (!told.exchange(true)) {
    LogInfo("RDMA is not used: {}", made.status().message());
  }
  return nullptr;
}

}  // namespace heddle::comm
