// Verbs: RDMA between workers whose ports are of one kind, over all of a worker's ports: its rails
// (rails.h). Each has a device and a listener of its own: handshakes run over TCP on the
// port's address, so that the acceptor knows by the listener which rail the dialler chose.
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "comm/links/discovery.h"
#include "comm/transport/ip_socket.h"
#include "comm/transport/registry.h"
#include "comm/transport/transport.h"
#include "comm/transport/verbs/rails.h"
#include "comm/transport/verbs/verbs_device.h"
#include "comm/transport/verbs/verbs_setup.h"

namespace heddle::comm {

namespace {

constexpr const char* kName = "verbs";
/// How long a pair of rails over which no connection came about is avoided.
constexpr Duration kAvoided = std::chrono::seconds(60);

/// What rails of one network have in common: InfiniBand, the subnet's part of the GIDs.
std::string NetworkOfPort(const RdmaPort& port) {
  if (port.kind != RdmaKind::kInfiniBand) {
    return NetworkOf(port.ip);
  }
  std::string prefix;
  for (const std::byte byte : std::span(port.gid).first<8>()) {
    prefix += fmt::format("{:02x}", static_cast<unsigned int>(byte));
  }
  return prefix;
}

class VerbsTransport final : public Transport {
 public:
  VerbsTransport() : Transport(kName) {}

  /// Listens at the port's address, or at `bind_host` where it has none.
  Status AddRail(const RdmaPort& port, const std::string& bind_host) {
    HEDDLE_ASSIGN_OR_RETURN(auto device, VerbsDevice::Open(port));
    HEDDLE_ASSIGN_OR_RETURN(auto listener, ListenTcp(port.ip.empty() ? bind_host : port.ip));
    const Status dma_buf = device->CheckDmaBuf();
    LogInfo("RDMA port {}: {}", port.name(),
            dma_buf.ok() ? "dma-buf" : fmt::format("no dma-buf: {}", dma_buf.message()));
    rails_.push_back({.kind = port.kind,
                      .bytes_per_second = port.bytes_per_second,
                      .near = port.near,
                      .network = NetworkOfPort(port),
                      .listener = listener.address});
    ends_.push_back({.device = std::move(device), .listener = std::move(listener)});
    return Status::Ok();
  }
  bool empty() const { return rails_.empty(); }

  std::string address() const override { return FormatRails(rails_); }
  std::vector<Listener> listeners() const override {
    std::vector<Listener> listeners;
    for (const End& end : ends_) {
      listeners.push_back({.socket = end.listener.socket.get(), .port = end.device->port().name()});
    }
    return listeners;
  }

  std::vector<Route> RoutesTo(const AddressParts& /*own*/,
                              const AddressParts& peer,
                              size_t number) const override {
    const auto theirs = peer.find(kName);
    if (theirs == peer.end()) {
      return {};
    }
    const auto rails = ParseRails(theirs->second);
    if (!rails.ok()) {
      LogWarning("RDMA is not used with a peer: {}", rails.status().message());
      return {};
    }
    std::vector<Route> routes;
    for (const RailPair& pair : ChooseRails(rails_, *rails, number, Avoided(*rails))) {
      routes.push_back({.listener = pair.own, .to = (*rails)[pair.peer].listener});
    }
    return routes;
  }

  void Avoid(const Route& route) const override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    avoided_[{route.listener, route.to}] = After(kAvoided);
  }

  Result<UniqueFd> Dial(const Route& route) const override {
    const End& end = ends_[route.listener];
    HEDDLE_RETURN_IF_ERROR(end.device->CheckPort());
    return DialTcp(end.listener.address, route.to);
  }

  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                         const SetupOptions& options) const override {
    return MakeVerbsSetup(ends_[options.listener].device, std::move(socket), options.traffic_class,
                          options.dialled);
  }

 private:
  struct End {
    std::shared_ptr<VerbsDevice> device;
    TcpListener listener;
  };

  std::vector<RailPair> Avoided(std::span<const Rail> peer) const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(avoided_, [now = Now()](const auto& entry) { return entry.second <= now; });
    std::vector<RailPair> pairs;
    for (size_t i = 0; i < rails_.size(); ++i) {
      for (size_t k = 0; k < peer.size(); ++k) {
        if (avoided_.contains({i, peer[k].listener})) {
          pairs.push_back({.own = i, .peer = k});
        }
      }
    }
    return pairs;
  }

  std::vector<Rail> rails_;  ///< Constant once all are added.
  std::vector<End> ends_;    ///< Devices and listeners of rails_; constant once all are added.
  mutable Mutex mutex_;
  /// Times until which pairs are avoided, by the own rail and the peer's listener.
  mutable std::map<std::pair<size_t, std::string>, Time> avoided_ HEDDLE_GUARDED_BY(mutex_);
};

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

std::string Whose(const std::string& devices) {
  return devices.empty() ? "" : " of device " + devices;
}

/// Why none of `ports` will do.
std::string Objections(const std::vector<RdmaPort>& ports, const std::string& devices) {
  std::vector<std::string> reasons;
  for (const RdmaPort& port : ports) {
    if (IsAmong(port, devices)) {
      reasons.push_back(fmt::format("{}: {}", port.name(), port.reason));
    }
  }
  return reasons.empty()
             ? fmt::format("no RDMA port{}", Whose(devices))
             : fmt::format("no usable RDMA port{} ({})", Whose(devices), fmt::join(reasons, "; "));
}

/// Option "devices": devices and ports "mlx5_0,mlx5_1/2" that it may use; empty: all that are
/// active (rails.h), but for a worker at a loopback address, which is for its own host alone.
/// Errors, all of which mean that there is no RDMA: kUnavailable (no port, or none that can be
/// used), kFailedPrecondition (a worker for its own host alone).
Result<std::unique_ptr<Transport>> Open(const TransportSettings& settings) {
  const std::string devices = settings.option("devices");
  if (devices.empty() && IsLoopback(settings.bind_host)) {
    return FailedPreconditionError("not for workers at a loopback address ({})",
                                   settings.bind_host);
  }
  const std::vector<RdmaPort> all = FindRdmaPorts();
  const auto ports = ChooseRdmaPorts(all, devices, settings.bind_host);
  if (ports.empty()) {
    return UnavailableError("{}", Objections(all, devices));
  }
  auto transport = std::make_unique<VerbsTransport>();
  std::vector<std::string> failures;
  for (const RdmaPort& port : ports) {
    const Status added = transport->AddRail(port, settings.bind_host);
    if (!added.ok()) {
      failures.push_back(fmt::format("{}: {}", port.name(), added.message()));
    }
  }
  if (transport->empty()) {
    return UnavailableError("{}", fmt::join(failures, "; "));
  }
  if (!failures.empty()) {
    LogWarning("RDMA ports that are not used: {}", fmt::join(failures, "; "));
  }
  return std::unique_ptr<Transport>(std::move(transport));
}

const RegisteredTransport kRegistered(kName, &Open, &ListRdmaPorts);

}  // namespace

bool BuiltWithVerbs() {
  return true;
}

}  // namespace heddle::comm
