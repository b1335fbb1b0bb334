#include "comm/discovery.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/unique_fd.h"

namespace heddle::comm {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileLimit = 1 << 16;
/// Hardware types of linux/if_arp.h, which cannot be included beside net/if.h.
constexpr int kTypeEthernet = 1;
constexpr int kTypeInfiniband = 32;
constexpr int kTypeLoopback = 772;
/// Kernels print an unknown speed as -1 or, from an unsigned number, as this.
constexpr int64_t kUnknownSpeed = 4294967295;

/// A line of sysfs without its end; empty: not there, or its driver refuses.
std::string Line(const fs::path& path) {
  const auto text = ReadFile(path.string(), kFileLimit);
  return text.ok() ? text->substr(0, text->find('\n')) : std::string();
}

int64_t Number(const fs::path& path, int64_t otherwise) {
  const std::string text = Line(path);
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && !text.empty()
             ? value
             : otherwise;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::vector<std::string> Entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    names.push_back(i->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string LinkTarget(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.filename().string();
}

/// What an interface stands on: "lower_NAME" links, and the ports of a bridge.
std::vector<std::string> Below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& entry : Entries(folder)) {
    if (entry.starts_with("lower_")) {
      names.push_back(entry.substr(std::strlen("lower_")));
    }
  }
  for (const std::string& port : Entries(folder / "brif")) {
    names.push_back(port);
  }
  return names;
}

/// Whether `name` has a device, or something below it has.
bool HasDevice(const fs::path& net, const std::string& name, std::set<std::string>& seen) {
  if (!seen.insert(name).second) {
    return false;
  }
  if (Exists(net / name / "device")) {
    return true;
  }
  const auto below = Below(net / name);
  return std::any_of(below.begin(), below.end(),
                     [&](const std::string& lower) { return HasDevice(net, lower, seen); });
}

std::string Medium(const fs::path& folder, int64_t type) {
  const std::string uevent = [&] {
    const auto text = ReadFile((folder / "uevent").string(), kFileLimit);
    return text.ok() ? *text : std::string();
  }();
  const auto is = [&](std::string_view device_type) {
    return uevent.find(fmt::format("DEVTYPE={}\n", device_type)) != std::string::npos;
  };
  if (type == kTypeLoopback) {
    return "loopback";
  }
  if (Exists(folder / "bridge") || is("bridge")) {
    return "bridge";
  }
  if (Exists(folder / "bonding") || is("bond") || is("team")) {
    return "bond";
  }
  if (is("vlan")) {
    return "vlan";
  }
  if (Exists(folder / "wireless") || Exists(folder / "phy80211") || is("wlan")) {
    return "wireless";
  }
  if (Exists(folder / "tun_flags")) {
    return "tunnel";
  }
  if (type == kTypeInfiniband) {
    return "infiniband";
  }
  if (type == kTypeEthernet && Exists(folder / "device")) {
    return "ethernet";
  }
  // A veth says nothing about itself but that its peer is another interface.
  if (type == kTypeEthernet && Number(folder / "iflink", 0) != Number(folder / "ifindex", 0)) {
    return "veth";
  }
  return "other";
}

NetworkInterface ReadInterface(const fs::path& net, const std::string& name) {
  const fs::path folder = net / name;
  NetworkInterface interface;
  interface.name = name;
  interface.medium = Medium(folder, Number(folder / "type", -1));
  std::set<std::string> seen;
  interface.kind = interface.medium == "loopback" ? InterfaceKind::kLoopback
                   : HasDevice(net, name, seen)   ? InterfaceKind::kPhysical
                   : interface.medium == "bridge" ? InterfaceKind::kContainer
                                                  : InterfaceKind::kVirtual;
  // "unknown" is what drivers without link detection say while they work.
  const std::string state = Line(folder / "operstate");
  interface.up = state == "up" || state == "unknown";
  const int64_t megabits = Number(folder / "speed", -1);
  interface.bytes_per_second =
      megabits > 0 && megabits < kUnknownSpeed ? static_cast<double>(megabits) * 1e6 / 8 : 0;
  interface.mtu_bytes = static_cast<int>(
      std::clamp<int64_t>(Number(folder / "mtu", 0), 0, std::numeric_limits<int>::max()));
  interface.numa_node =
      static_cast<int>(std::clamp<int64_t>(Number(folder / "device/numa_node", -1), -1, 1 << 20));
  interface.driver = LinkTarget(folder / "device/driver");
  return interface;
}

/// Numeric text of an address; empty for a family that is none, and for link-local ones, which mean
/// nothing without an interface's name.
std::string NumericAddress(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address == nullptr) {
    return "";
  }
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    const bool local = (ntohl(v4->sin_addr.s_addr) >> 16) == 0xA9FE;  // 169.254.0.0/16
    return !local && ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)) != nullptr ? text : "";
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
                   ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)) != nullptr
               ? text
               : "";
  }
  return "";
}

std::string SpeedText(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:g} Gbit/s", bytes_per_second * 8 / 1e9)
                              : std::string("speed unknown");
}

/// Why an interface is not for traffic with other machines; empty: it is.
std::string Objection(const NetworkInterface& interface) {
  if (interface.kind == InterfaceKind::kLoopback) {
    return "loopback: only among workers of this machine";
  }
  if (interface.kind == InterfaceKind::kContainer) {
    return "a bridge of this machine's containers or guests: other machines are not behind it";
  }
  if (!interface.up) {
    return "down";
  }
  if (interface.ips.empty()) {
    return "no address (a link-local one does not count)";
  }
  return "";
}

/// "100 Gb/sec (4X EDR)" in bytes a second; 0: it is something else.
double ParseRate(const std::string& text) {
  double gigabits = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), gigabits);
  return parsed.ec == std::errc() && gigabits > 0 &&
                 std::string_view(parsed.ptr).starts_with(" Gb/sec")
             ? gigabits * 1e9 / 8
             : 0;
}

std::string RdmaKindOf(const std::string& node_type, const std::string& link_layer) {
  if (node_type.starts_with("4:")) {
    return "iwarp";  // An RNIC; its link layer is Ethernet, too.
  }
  return link_layer == "Ethernet" ? "roce" : link_layer == "InfiniBand" ? "infiniband" : "unknown";
}

bool IsSet(const std::string& gid) {
  return gid.find_first_not_of("0:") != std::string::npos;
}

std::vector<RdmaGidEntry> ReadGids(const fs::path& port) {
  std::vector<RdmaGidEntry> gids;
  for (const std::string& entry : Entries(port / "gids")) {
    int index = 0;
    const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    const std::string gid = Line(port / "gids" / entry);
    if (parsed.ec == std::errc() && IsSet(gid)) {
      gids.push_back({.index = index,
                      .gid = gid,
                      .type = Line(port / "gid_attrs/types" / entry),
                      .net_device = Line(port / "gid_attrs/ndevs" / entry)});
    }
  }
  std::sort(gids.begin(), gids.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return gids;
}

void JudgeRdma(RdmaPortReport& port) {
  const auto routable = [](const RdmaGidEntry& entry) {
    return entry.type == "RoCE v2" && !entry.gid.starts_with("fe80:");
  };
  if (port.kind == "unknown") {
    port.reason = "neither InfiniBand, RoCE nor iWARP";
  } else if (port.state != "ACTIVE") {
    port.reason = fmt::format("its state is {}", port.state.empty() ? "unknown" : port.state);
  } else if (port.gids.empty()) {
    port.reason = "no GID: its interface has no address";
  } else if (port.kind == "roce" && std::none_of(port.gids.begin(), port.gids.end(), routable)) {
    port.reason = "no GID of RoCE version 2 with an IP address: its interface has none";
  } else {
    port.usable = true;
    port.reason = fmt::format("active, {}", SpeedText(port.bytes_per_second));
  }
}

struct Resolved {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Result<Resolved> ResolveHost(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidArgumentError("'{}' is not HOST:PORT", host_port);
  }
  std::string host = host_port.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0 || list == nullptr) {
    return InvalidArgumentError("host {}: {}", host, ::gai_strerror(error));
  }
  Resolved resolved;
  std::memcpy(&resolved.address, list->ai_addr, list->ai_addrlen);
  resolved.size = list->ai_addrlen;
  ::freeaddrinfo(list);
  return resolved;
}

/// The address from which the kernel would send to `host_port`.
Result<std::string> AddressTowards(const std::string& host_port) {
  HEDDLE_ASSIGN_OR_RETURN(Resolved to, ResolveHost(host_port));
  // Any port: a datagram socket that is connected only asks the routes.
  auto* v4 = reinterpret_cast<sockaddr_in*>(&to.address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&to.address);
  (to.address.ss_family == AF_INET ? v4->sin_port : v6->sin6_port) = htons(9);
  const UniqueFd socket(::socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ErrnoError(errno, "socket");
  }
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
    return UnavailableError("{}",
                            ErrnoError(errno, fmt::format("a route to {}", host_port)).message());
  }
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    return ErrnoError(errno, "getsockname");
  }
  const std::string text = NumericAddress(reinterpret_cast<const sockaddr*>(&own));
  if (text.empty()) {
    return UnavailableError("the route to {} starts at a link-local address: name one with --bind",
                            host_port);
  }
  return text;
}

}  // namespace

std::string_view InterfaceKindName(InterfaceKind kind) {
  switch (kind) {
    case InterfaceKind::kPhysical:
      return "physical";
    case InterfaceKind::kVirtual:
      return "virtual";
    case InterfaceKind::kContainer:
      return "container";
    case InterfaceKind::kLoopback:
      return "loopback";
  }
  return "";
}

std::vector<NetworkInterface> ReadInterfaces(const std::string& sys) {
  const fs::path net = fs::path(sys) / "class/net";
  std::vector<NetworkInterface> interfaces;
  for (const std::string& name : Entries(net)) {
    if (Exists(net / name / "type")) {  // bonding_masters is a file among them.
      interfaces.push_back(ReadInterface(net, name));
    }
  }
  return interfaces;
}

std::vector<NetworkInterface> FindInterfaces() {
  std::vector<NetworkInterface> interfaces = ReadInterfaces("/sys");
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return interfaces;
  }
  std::map<std::string, std::vector<std::string>> later;  // IPv6, after IPv4.
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto is_it = [&](const auto& other) { return other.name == entry->ifa_name; };
    auto place = std::find_if(interfaces.begin(), interfaces.end(), is_it);
    if (place == interfaces.end()) {
      NetworkInterface unseen;
      unseen.name = entry->ifa_name;
      unseen.up = (entry->ifa_flags & IFF_RUNNING) != 0;
      if ((entry->ifa_flags & IFF_LOOPBACK) != 0) {
        unseen.kind = InterfaceKind::kLoopback;
        unseen.medium = "loopback";
      }
      place = interfaces.insert(interfaces.end(), unseen);
    }
    if (const std::string ip = NumericAddress(entry->ifa_addr); !ip.empty()) {
      (entry->ifa_addr->sa_family == AF_INET ? place->ips : later[place->name]).push_back(ip);
    }
  }
  ::freeifaddrs(list);
  for (NetworkInterface& interface : interfaces) {
    const auto& more = later[interface.name];
    interface.ips.insert(interface.ips.end(), more.begin(), more.end());
  }
  return interfaces;
}

std::vector<InterfaceVerdict> JudgeInterfaces(std::vector<NetworkInterface> interfaces) {
  std::vector<InterfaceVerdict> verdicts;
  for (NetworkInterface& interface : interfaces) {
    InterfaceVerdict verdict;
    verdict.reason = Objection(interface);
    verdict.usable = verdict.reason.empty();
    verdict.interface = std::move(interface);
    verdicts.push_back(std::move(verdict));
  }
  std::stable_sort(verdicts.begin(), verdicts.end(), [](const auto& a, const auto& b) {
    const auto key = [](const InterfaceVerdict& verdict) {
      return std::tuple(!verdict.usable, verdict.interface.kind,
                        -verdict.interface.bytes_per_second);
    };
    return key(a) != key(b) ? key(a) < key(b) : a.interface.name < b.interface.name;
  });
  for (size_t i = 0; i < verdicts.size() && verdicts[i].usable; ++i) {
    const NetworkInterface& interface = verdicts[i].interface;
    verdicts[i].chosen = i == 0;
    verdicts[i].reason =
        fmt::format("{} {}, {}{}", InterfaceKindName(interface.kind), interface.medium,
                    SpeedText(interface.bytes_per_second),
                    i == 0 ? "" : fmt::format("; {} is better", verdicts[0].interface.name));
  }
  return verdicts;
}

std::vector<RdmaPortReport> ReadRdmaPorts(const std::string& sys) {
  const fs::path devices = fs::path(sys) / "class/infiniband";
  std::vector<RdmaPortReport> reports;
  for (const std::string& device : Entries(devices)) {
    for (const std::string& entry : Entries(devices / device / "ports")) {
      RdmaPortReport report;
      report.device = device;
      const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), report.port);
      if (parsed.ec != std::errc()) {
        continue;
      }
      const fs::path port = devices / device / "ports" / entry;
      report.kind = RdmaKindOf(Line(devices / device / "node_type"), Line(port / "link_layer"));
      const std::string state = Line(port / "state");  // "4: ACTIVE"
      report.state =
          state.find(": ") == std::string::npos ? state : state.substr(state.find(": ") + 2);
      report.bytes_per_second = ParseRate(Line(port / "rate"));
      report.numa_node = static_cast<int>(
          std::clamp<int64_t>(Number(devices / device / "device/numa_node", -1), -1, 1 << 20));
      report.gids = ReadGids(port);
      JudgeRdma(report);
      reports.push_back(std::move(report));
    }
  }
  return reports;
}

Result<std::string> FindBindAddress(const std::string& wanted, const std::string& coordinator) {
  if (wanted.empty()) {
    return AddressTowards(coordinator);
  }
  for (const NetworkInterface& interface : FindInterfaces()) {
    if (interface.name == wanted) {
      if (interface.ips.empty()) {
        return InvalidArgumentError("the interface {} has no address", wanted);
      }
      return interface.ips.front();
    }
  }
  return wanted;
}

}  // namespace heddle::comm
