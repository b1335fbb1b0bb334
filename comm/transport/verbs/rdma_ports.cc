#include "comm/transport/verbs/rdma_ports.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "comm/links/sysfs.h"

namespace heddle::comm {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMacBytes = 6;
/// A queue pair's attribute for it has eight bits.
constexpr int kMaxGidIndex = 255;

/// "100 Gb/sec (4X EDR)" in bytes a second; 0: it is something else.
double ParseRate(const std::string& text) {
  double gigabits = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), gigabits);
  return parsed.ec == std::errc() && gigabits > 0 &&
                 std::string_view(parsed.ptr).starts_with(" Gb/sec")
             ? gigabits * 1e9 / 8
             : 0;
}

RdmaKind KindOf(const std::string& node_type, const std::string& link_layer) {
  if (node_type.starts_with("4:")) {
    return RdmaKind::kIwarp;  // An RNIC; its link layer is Ethernet, too.
  }
  // Only channel adapters have reliable queue pairs; switches and usNIC have not.
  if (!node_type.starts_with("1:")) {
    return RdmaKind::kUnknown;
  }
  return link_layer == "Ethernet"     ? RdmaKind::kRoce
         : link_layer == "InfiniBand" ? RdmaKind::kInfiniBand
                                      : RdmaKind::kUnknown;
}

RdmaGid GidOf(const std::string& ip) {
  RdmaGid gid{};
  if (::inet_pton(AF_INET6, ip.c_str(), gid.data()) == 1) {
    return gid;
  }
  gid = {};
  gid[10] = gid[11] = std::byte{0xFF};  // IPv4-mapped.
  ::inet_pton(AF_INET, ip.c_str(), gid.data() + 12);
  return gid;
}

/// "52:54:00:12:34:56" as the first bytes of a GID; nothing: it is something else.
std::optional<RdmaGid> MacGid(std::string_view mac) {
  RdmaGid gid{};
  for (size_t i = 0; i < kMacBytes; ++i) {
    uint8_t byte = 0;
    const auto parsed = std::from_chars(mac.data(), mac.data() + mac.size(), byte, 16);
    const bool last = i + 1 == kMacBytes;
    if (parsed.ec != std::errc() || (parsed.ptr == mac.data() + mac.size()) != last ||
        (!last && *parsed.ptr != ':')) {
      return std::nullopt;
    }
    gid[i] = std::byte{byte};
    mac.remove_prefix(static_cast<size_t>(parsed.ptr - mac.data()) + (last ? 0 : 1));
  }
  return gid;
}

std::vector<RdmaGidEntry> ReadGids(const fs::path& port) {
  std::vector<RdmaGidEntry> gids;
  for (const std::string& name : SysfsEntries(port / "gids")) {
    RdmaGidEntry entry;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), entry.index);
    entry.text = SysfsLine(port / "gids" / name);
    if (parsed.ec != std::errc() ||
        ::inet_pton(AF_INET6, entry.text.c_str(), entry.gid.data()) != 1 ||
        entry.gid == RdmaGid{}) {
      continue;
    }
    entry.type = SysfsLine(port / "gid_attrs/types" / name);
    entry.net_device = SysfsLine(port / "gid_attrs/ndevs" / name);
    gids.push_back(std::move(entry));
  }
  std::sort(gids.begin(), gids.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  return gids;
}

/// Whether `interface` is the one of `port` for addresses like `ip`, to which `entry` belongs.
bool Belongs(const RdmaGidEntry& entry,
             const RdmaPort& port,
             const fs::path& interface,
             const std::string& ip) {
  if (port.kind == RdmaKind::kRoce) {  // Its table holds the addresses of its net device.
    return entry.type == "RoCE v2" && entry.gid == GidOf(ip);
  }
  if (port.kind == RdmaKind::kIwarp) {  // One entry, which is its net device's hardware address.
    return entry.net_device == interface.filename() ||
           (entry.net_device.empty() && entry.gid == MacGid(SysfsLine(interface / "address")));
  }
  return SysfsExists(interface / "device/infiniband" / port.device) &&
         SysfsNumber(interface / "dev_port", 0) == port.port - 1;
}

/// The port's identity among its kind, and the address of its net device.
void FindAddress(RdmaPort& port,
                 const fs::path& net,
                 std::span<const NetworkInterface> interfaces) {
  if (port.kind == RdmaKind::kInfiniBand && !port.gids.empty()) {  // With or without IP.
    port.gid = port.gids.front().gid;
    port.gid_index = port.gids.front().index;
  }
  for (const NetworkInterface& interface : interfaces) {
    for (const std::string& ip : interface.ips) {
      for (const RdmaGidEntry& entry : port.gids) {
        if (Belongs(entry, port, net / interface.name, ip)) {
          port.gid = entry.gid;
          port.gid_index = entry.index;
          port.net_device = interface.name;
          port.ip = ip;
          return;
        }
      }
    }
  }
}

void Judge(RdmaPort& port) {
  if (port.kind == RdmaKind::kUnknown) {
    port.reason = "neither InfiniBand, RoCE nor iWARP";
  } else if (port.state != "ACTIVE") {
    port.reason = fmt::format("its state is {}", port.state.empty() ? "unknown" : port.state);
  } else if (port.gids.empty()) {
    port.reason = "no GID: its interface has no address";
  } else if (port.kind == RdmaKind::kRoce && port.gid_index < 0) {
    port.reason = "no GID of RoCE version 2 with an address of this machine";
  } else if (port.gid_index < 0) {
    port.reason = "no interface with an address belongs to it";
  } else if (port.gid_index > kMaxGidIndex) {
    port.reason = fmt::format("its GID is number {}, queue pairs take none above {}",
                              port.gid_index, kMaxGidIndex);
  } else if (port.character_device.empty()) {
    port.reason = "programs cannot reach it: load the module ib_uverbs";
  } else {
    port.usable = true;
    port.reason = fmt::format("active, {}", SpeedText(port.bytes_per_second));
  }
}

/// What the kernel files cannot say: whether this process can use the port.
void JudgeHere(RdmaPort& port) {
  const std::string file = "/dev/infiniband/" + port.character_device;
  if (!BuiltWithVerbs()) {
    port.usable = false;
    port.reason = "this program was built without libibverbs and librdmacm";
  } else if (::access(file.c_str(), R_OK | W_OK) != 0) {
    port.usable = false;
    port.reason = ErrnoError(errno, fmt::format("this process cannot open {}", file)).message();
  }
}

/// The processors that this process may run on.
std::vector<int> OwnProcessors() {
  std::vector<int> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof(set), &set);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) {
      processors.push_back(i);
    }
  }
  return processors;
}

}  // namespace

std::string_view RdmaKindName(RdmaKind kind) {
  switch (kind) {
    case RdmaKind::kInfiniBand:
      return "infiniband";
    case RdmaKind::kRoce:
      return "roce";
    case RdmaKind::kIwarp:
      return "iwarp";
    case RdmaKind::kUnknown:
      break;
  }
  return "unknown";
}

std::vector<RdmaPort> ReadRdmaPorts(const std::string& sys,
                                    std::span<const NetworkInterface> interfaces) {
  const fs::path devices = fs::path(sys) / "class/infiniband";
  const fs::path characters = fs::path(sys) / "class/infiniband_verbs";
  std::vector<RdmaPort> ports;
  for (const std::string& device : SysfsEntries(devices)) {
    for (const std::string& entry : SysfsEntries(devices / device / "ports")) {
      RdmaPort port;
      port.device = device;
      const auto parsed = std::from_chars(entry.data(), entry.data() + entry.size(), port.port);
      if (parsed.ec != std::errc()) {
        continue;
      }
      const fs::path folder = devices / device / "ports" / entry;
      port.kind =
          KindOf(SysfsLine(devices / device / "node_type"), SysfsLine(folder / "link_layer"));
      const std::string state = SysfsLine(folder / "state");  // "4: ACTIVE"
      port.state =
          state.find(": ") == std::string::npos ? state : state.substr(state.find(": ") + 2);
      port.bytes_per_second = ParseRate(SysfsLine(folder / "rate"));
      port.numa_node = static_cast<int>(
          std::clamp<int64_t>(SysfsNumber(devices / device / "device/numa_node", -1), -1, 1 << 20));
      for (const std::string& character : SysfsEntries(characters)) {
        if (SysfsLine(characters / character / "ibdev") == device) {
          port.character_device = character;
        }
      }
      port.gids = ReadGids(folder);
      FindAddress(port, fs::path(sys) / "class/net", interfaces);
      Judge(port);
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::vector<RdmaPort> FindRdmaPorts() {
  std::vector<RdmaPort> ports = ReadRdmaPorts("/sys", FindInterfaces());
  const std::vector<int> processors = OwnProcessors();
  for (RdmaPort& port : ports) {
    port.near = IsNear("/sys", port.numa_node, processors);
    if (port.usable) {
      JudgeHere(port);
    }
  }
  return ports;
}

std::string RdmaPort::name() const {
  return fmt::format("{}/{}", device, port);
}

bool IsAmong(const RdmaPort& port, std::string_view devices) {
  const std::string name = port.name();
  for (std::string_view rest = devices; !rest.empty();) {
    const size_t end = rest.find(',');
    const std::string_view wanted = rest.substr(0, end);
    if (wanted == port.device || wanted == name) {
      return true;
    }
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return devices.empty();
}

std::vector<RdmaPort> ChooseRdmaPorts(const std::vector<RdmaPort>& ports,
                                      std::string_view devices,
                                      std::string_view bind_host) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < ports.size(); ++i) {
    const bool again = ports[i].kind == RdmaKind::kIwarp && !chosen.empty() &&
                       ports[chosen.back()].device == ports[i].device;
    if (ports[i].usable && IsAmong(ports[i], devices) && !again) {
      chosen.push_back(i);
    }
  }
  if (chosen.size() > kMaxRails) {
    const auto rank = [&](size_t i) {
      return std::pair(ports[i].ip == bind_host, ports[i].bytes_per_second);
    };
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](size_t a, size_t b) { return rank(a) > rank(b); });
    chosen.resize(kMaxRails);
    std::sort(chosen.begin(), chosen.end());
  }
  std::vector<RdmaPort> result;
  result.reserve(chosen.size());
  for (const size_t i : chosen) {
    result.push_back(ports[i]);
  }
  return result;
}

bool IsNear(const std::string& sys, int node, std::span<const int> processors) {
  const std::string list =
      SysfsLine(fs::path(sys) / fmt::format("devices/system/node/node{}/cpulist", node));
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {  // "0-3,8,10-11"
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    int last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc() || (parsed.ptr != end && *parsed.ptr != ',')) {
      return true;
    }
    if (std::any_of(processors.begin(), processors.end(),
                    [&](int processor) { return processor >= first && processor <= last; })) {
      return true;
    }
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  return list.empty();
}

std::vector<NetworkPort> ListRdmaPorts(const std::string& bind_host) {
  const std::vector<RdmaPort> ports = FindRdmaPorts();
  const std::vector<RdmaPort> chosen = ChooseRdmaPorts(ports, "", bind_host);
  std::vector<NetworkPort> listed;
  for (const RdmaPort& port : ports) {
    const auto is_it = [&](const RdmaPort& other) { return other.name() == port.name(); };
    listed.push_back({.name = port.name(),
                      .device = port.device,
                      .port = port.port,
                      .kind = std::string(RdmaKindName(port.kind)),
                      .state = port.state,
                      .bytes_per_second = port.bytes_per_second,
                      .numa_node = port.numa_node,
                      .address_index = port.gid_index,
                      .net_device = port.net_device,
                      .ip = port.ip,
                      .usable = port.usable,
                      .chosen = std::any_of(chosen.begin(), chosen.end(), is_it),
                      .reason = port.reason});
    for (const RdmaGidEntry& entry : port.gids) {
      listed.back().addresses.push_back({.index = entry.index,
                                         .text = entry.text,
                                         .type = entry.type,
                                         .net_device = entry.net_device});
    }
  }
  return listed;
}

}  // namespace heddle::comm
