// Verbs: RDMA between workers whose ports are of one kind, over all of a worker's ports: its rails
// (rails.h). Each has a device of its own and a door of its own: handshakes run over TCP on the
// port's address, so that the acceptor knows by the door which rail the dialler chose.
#include "comm/transport/verbs/verbs_transport.h"

#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "comm/links/discovery.h"
#include "comm/transport/ip_socket.h"
#include "comm/transport/transport.h"
#include "comm/transport/verbs/rails.h"
#include "comm/transport/verbs/verbs_device.h"
#include "comm/transport/verbs/verbs_setup.h"

namespace heddle::comm {

namespace {

constexpr std::string_view kKey = "verbs";
/// How long a pair of rails that came to nothing gives way to others.
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
  /// Listens at the port's address, or at `bind_host` where it has none.
  Status AddRail(const RdmaPort& port, const std::string& bind_host) {
    HEDDLE_ASSIGN_OR_RETURN(auto device, VerbsDevice::Open(port));
    HEDDLE_ASSIGN_OR_RETURN(auto listener, ListenTcp(port.ip.empty() ? bind_host : port.ip));
    rails_.push_back({.kind = port.kind,
                      .bytes_per_second = port.bytes_per_second,
                      .near = port.near,
                      .network = NetworkOfPort(port),
                      .door = listener.address});
    doors_.push_back({.device = std::move(device), .listener = std::move(listener)});
    return Status::Ok();
  }
  bool empty() const { return rails_.empty(); }

  std::string_view name() const override { return kKey; }
  std::string address() const override { return FormatRails(rails_); }
  std::vector<int> doors() const override {
    std::vector<int> sockets;
    for (const Door& door : doors_) {
      sockets.push_back(door.listener.socket.get());
    }
    return sockets;
  }
  std::string port(size_t door) const override { return doors_[door].device->port().name(); }

  std::vector<Way> WaysTo(const AddressParts& /*own*/,
                          const AddressParts& peer,
                          size_t number) const override {
    const auto theirs = peer.find(std::string(kKey));
    if (theirs == peer.end()) {
      return {};
    }
    const auto rails = ParseRails(theirs->second);
    if (!rails.ok()) {
      LogWarning("RDMA is not used with a peer: {}", rails.status().message());
      return {};
    }
    std::vector<Way> ways;
    for (const RailPair& pair : ChooseRails(rails_, *rails, number, Avoided(*rails))) {
      ways.push_back({.door = pair.own, .to = (*rails)[pair.peer].door});
    }
    return ways;
  }

  void Avoid(const Way& way) const override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    avoided_[{way.door, way.to}] = After(kAvoided);
  }

  Result<UniqueFd> Dial(const Way& way) const override {
    const Door& door = doors_[way.door];
    HEDDLE_RETURN_IF_ERROR(door.device->CheckPort());
    return DialTcp(door.listener.address, way.to);
  }

  std::unique_ptr<ConnectionSetup> Begin(
      size_t door, UniqueFd socket, Lane lane, bool dialled, const Digest& /*key*/) const override {
    return MakeVerbsSetup(doors_[door].device, std::move(socket), lane, dialled);
  }

 private:
  struct Door {
    std::shared_ptr<VerbsDevice> device;
    TcpListener listener;
  };

  std::vector<RailPair> Avoided(std::span<const Rail> peer) const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(avoided_, [now = Now()](const auto& entry) { return entry.second <= now; });
    std::vector<RailPair> pairs;
    for (size_t i = 0; i < rails_.size(); ++i) {
      for (size_t k = 0; k < peer.size(); ++k) {
        if (avoided_.contains({i, peer[k].door})) {
          pairs.push_back({.own = i, .peer = k});
        }
      }
    }
    return pairs;
  }

  std::vector<Rail> rails_;  ///< Constant once all are added, like...
  std::vector<Door> doors_;  ///< ...their doors, at the same places.
  mutable Mutex mutex_;
  /// Until when, by the own rail and the peer's door.
  mutable std::map<std::pair<size_t, std::string>, Time> avoided_ HEDDLE_GUARDED_BY(mutex_);
};

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost";
}

std::string Whose(const EndpointOptions& options) {
  return options.rdma_devices.empty() ? "" : " of device " + options.rdma_devices;
}

/// Why none of `ports` will do.
std::string Objections(const std::vector<RdmaPort>& ports, const EndpointOptions& options) {
  std::vector<std::string> reasons;
  for (const RdmaPort& port : ports) {
    if (IsAmong(port, options.rdma_devices)) {
      reasons.push_back(fmt::format("{}: {}", port.name(), port.reason));
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
  if (options.rdma_devices.empty() && IsLoopback(options.bind_host)) {
    return FailedPreconditionError("not for workers at a loopback address ({})", options.bind_host);
  }
  const std::vector<RdmaPort> all = FindRdmaPorts();
  const auto ports = ChooseRdmaPorts(all, options.rdma_devices, options.bind_host);
  if (ports.empty()) {
    return UnavailableError("{}", Objections(all, options));
  }
  auto transport = std::make_unique<VerbsTransport>();
  std::vector<std::string> failures;
  for (const RdmaPort& port : ports) {
    const Status added = transport->AddRail(port, options.bind_host);
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

}  // namespace heddle::comm
