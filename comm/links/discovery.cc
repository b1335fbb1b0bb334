#include "comm/links/discovery.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/system/file.h"
#include "base/system/socket_address.h"
#include "comm/links/sysfs.h"

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

/// What an interface stands on: "lower_NAME" links, and the ports of a bridge.
std::vector<std::string> Below(const fs::path& folder) {
  std::vector<std::string> names;
  for (const std::string& entry : SysfsEntries(folder)) {
    if (entry.starts_with("lower_")) {
      names.push_back(entry.substr(std::strlen("lower_")));
    }
  }
  for (const std::string& port : SysfsEntries(folder / "brif")) {
    names.push_back(port);
  }
  return names;
}

/// Whether `name` has a device, or something below it has.
bool HasDevice(const fs::path& net, const std::string& name, std::set<std::string>& seen) {
  if (!seen.insert(name).second) {
    return false;
  }
  if (SysfsExists(net / name / "device")) {
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
  if (SysfsExists(folder / "bridge") || is("bridge")) {
    return "bridge";
  }
  if (SysfsExists(folder / "bonding") || is("bond") || is("team")) {
    return "bond";
  }
  if (is("vlan")) {
    return "vlan";
  }
  if (SysfsExists(folder / "wireless") || SysfsExists(folder / "phy80211") || is("wlan")) {
    return "wireless";
  }
  if (SysfsExists(folder / "tun_flags")) {
    return "tunnel";
  }
  if (type == kTypeInfiniband) {
    return "infiniband";
  }
  if (type == kTypeEthernet && SysfsExists(folder / "device")) {
    return "ethernet";
  }
  // A veth says nothing about itself but that its peer is another interface.
  if (type == kTypeEthernet &&
      SysfsNumber(folder / "iflink", 0) != SysfsNumber(folder / "ifindex", 0)) {
    return "veth";
  }
  return "other";
}

NetworkInterface ReadInterface(const fs::path& net, const std::string& name) {
  const fs::path folder = net / name;
  NetworkInterface interface;
  interface.name = name;
  interface.medium = Medium(folder, SysfsNumber(folder / "type", -1));
  std::set<std::string> seen;
  interface.kind = interface.medium == "loopback" ? InterfaceKind::kLoopback
                   : HasDevice(net, name, seen)   ? InterfaceKind::kPhysical
                   : interface.medium == "bridge" ? InterfaceKind::kContainer
                                                  : InterfaceKind::kVirtual;
  // "unknown" is what drivers without link detection say while they work.
  const std::string state = SysfsLine(folder / "operstate");
  interface.up = state == "up" || state == "unknown";
  const int64_t megabits = SysfsNumber(folder / "speed", -1);
  interface.bytes_per_second =
      megabits > 0 && megabits < kUnknownSpeed ? static_cast<double>(megabits) * 1e6 / 8 : 0;
  interface.mtu_bytes = static_cast<int>(
      std::clamp<int64_t>(SysfsNumber(folder / "mtu", 0), 0, std::numeric_limits<int>::max()));
  interface.numa_node = static_cast<int>(
      std::clamp<int64_t>(SysfsNumber(folder / "device/numa_node", -1), -1, 1 << 20));
  interface.driver = SysfsLinkTarget(folder / "device/driver");
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

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> ResolveHost(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidArgumentError("the coordinator '{}' is not HOST:PORT", host_port);
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
    // A name server that does not answer yet is no mistake of the caller.
    return error == EAI_AGAIN || error == EAI_SYSTEM
               ? UnavailableError("host {}: {}", host, ::gai_strerror(error))
               : InvalidArgumentError("host {}: {}", host, ::gai_strerror(error));
  }
  return Addresses(list);
}

/// The address from which the kernel would send to `target`.
Result<std::string> RouteTo(const addrinfo& target) {
  SocketAddress to;
  std::memcpy(&to.storage, target.ai_addr, target.ai_addrlen);
  to.length = target.ai_addrlen;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&to.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&to.storage);
  (target.ai_family == AF_INET ? v4->sin_port : v6->sin6_port) = htons(9);  // Any will do.
  HEDDLE_ASSIGN_OR_RETURN(const SocketAddress own, OwnAddressTowards(to));
  const std::string text = NumericAddress(reinterpret_cast<const sockaddr*>(&own.storage));
  if (text.empty()) {
    return UnavailableError("the route begins at a link-local address: name one with --bind");
  }
  return text;
}

/// IPv4 first: a name may have an IPv6 address on a machine that has no IPv6.
Result<std::string> AddressTowards(const std::string& host_port) {
  HEDDLE_ASSIGN_OR_RETURN(const Addresses list, ResolveHost(host_port));
  Status failure = UnavailableError("it has no address");
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family == family) {
        Result<std::string> own = RouteTo(*entry);
        if (own.ok()) {
          return own;
        }
        failure = own.status();
      }
    }
  }
  return failure.WithContext("the way to {}", host_port);
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
  for (const std::string& name : SysfsEntries(net)) {
    if (SysfsExists(net / name / "type")) {  // bonding_masters is a file among them.
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

std::string NetworkOf(const std::string& ip) {
  ifaddrs* list = nullptr;
  // An address of one link alone (fe80::…) has no text here: it must not be the unknown one's.
  if (ip.empty() || ::getifaddrs(&list) != 0) {
    return {};
  }
  std::string network;
  for (const ifaddrs* entry = list; entry != nullptr && network.empty(); entry = entry->ifa_next) {
    if (entry->ifa_netmask != nullptr && NumericAddress(entry->ifa_addr) == ip) {
      const bool four = entry->ifa_addr->sa_family == AF_INET;
      const auto bytes = [&](sockaddr* address) {
        auto* const first =
            four ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(address)->sin_addr)
                 : static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(address)->sin6_addr);
        return std::span(static_cast<uint8_t*>(first), four ? size_t{4} : size_t{16});
      };
      const auto address = bytes(entry->ifa_addr);
      const auto mask = bytes(entry->ifa_netmask);
      int bits = 0;
      for (size_t i = 0; i < address.size(); ++i) {
        address[i] &= mask[i];
        bits += std::popcount(mask[i]);
      }
      std::array<char, INET6_ADDRSTRLEN> text{};
      ::inet_ntop(entry->ifa_addr->sa_family, address.data(), text.data(), text.size());
      network = fmt::format("{}-{}", text.data(), bits);
    }
  }
  ::freeifaddrs(list);
  return network;
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
  if (wanted == "0.0.0.0" || wanted == "::") {
    return InvalidArgumentError(
        "'{}' is every address of this machine, and none at which others reach it: name one, or an "
        "interface",
        wanted);
  }
  if (!ResolveHost(fmt::format("[{}]:0", wanted)).ok()) {
    return InvalidArgumentError("'{}' is neither an address nor an interface of this machine",
                                wanted);
  }
  return wanted;
}

}  // namespace heddle::comm
