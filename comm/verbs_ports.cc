#include "comm/verbs_ports.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/file.h"

namespace heddle::comm {

namespace {

constexpr size_t kMacBytes = 6;

struct NetDevice {
  std::vector<std::string> addresses;  ///< IPv4 first; no link-local ones.
  RdmaGid mac{};                       ///< Its first bytes.
};

std::map<std::string, NetDevice> NetDevices() {
  std::map<std::string, NetDevice> devices;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return devices;
  }
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    NetDevice& device = devices[entry->ifa_name];
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
      device.addresses.insert(device.addresses.begin(), text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (!IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) {
        ::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
        device.addresses.emplace_back(text);
      }
    } else if (entry->ifa_addr->sa_family == AF_PACKET) {
      const auto* address = reinterpret_cast<const sockaddr_ll*>(entry->ifa_addr);
      std::memcpy(device.mac.data(), address->sll_addr,
                  std::min<size_t>(address->sll_halen, kMacBytes));
    }
  }
  ::freeifaddrs(list);
  return devices;
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

struct Gid {
  RdmaGid gid{};
  int index = 0;
  uint32_t type = 0;
  std::string net_device;
};

std::vector<Gid> GidTable(ibv_context* context, uint8_t port, size_t places) {
  std::vector<ibv_gid_entry> entries(places);
  const ssize_t count = ::ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  std::vector<Gid> table;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    if (entry.port_num != port) {
      continue;
    }
    Gid gid{.gid = {},
            .index = static_cast<int>(entry.gid_index),
            .type = entry.gid_type,
            .net_device = {}};
    std::memcpy(gid.gid.data(), entry.gid.raw, gid.gid.size());
    char name[IF_NAMESIZE] = {};
    if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) {
      gid.net_device = name;
    }
    table.push_back(std::move(gid));
  }
  return table;
}

double LaneBytesPerSecond(int speed) {
  switch (speed) {  // The InfiniBand specification's encoding, in Gbit/s.
    case 1:
      return 2.5e9 / 8;
    case 2:
      return 5e9 / 8;
    case 4:
    case 8:
      return 10e9 / 8;
    case 16:
      return 14.0625e9 / 8;
    case 32:
      return 25.78125e9 / 8;
    case 64:
      return 50e9 / 8;
    case 128:
      return 100e9 / 8;
    default:
      return 0;
  }
}

int Lanes(int width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

int NumaNode(const ibv_device& device) {
  const auto text = ReadFile(fmt::format("{}/device/numa_node", device.ibdev_path), 32);
  int node = -1;
  if (text.ok()) {
    std::from_chars(text->data(), text->data() + text->size(), node);
  }
  return node;
}

// The port's identity among its kind, and the address of its net device.
void FindAddress(RdmaPort& port,
                 const std::vector<Gid>& gids,
                 const std::map<std::string, NetDevice>& nets) {
  if (port.kind == RdmaKind::kInfiniBand) {
    const bool any = !gids.empty();
    port.gid = any ? gids.front().gid : RdmaGid{};
    port.gid_index = any ? gids.front().index : -1;
    port.net_device = any ? gids.front().net_device : "";
    const auto net = nets.find(port.net_device);
    if (net != nets.end() && !net->second.addresses.empty()) {
      port.ip = net->second.addresses.front();
    }
    return;
  }
  for (const auto& [name, net] : nets) {
    for (const std::string& ip : net.addresses) {
      for (const Gid& gid : gids) {
        // RoCE: its table holds the addresses of its net device. iWARP has one entry, which is its
        // net device's hardware address.
        const bool same =
            port.kind == RdmaKind::kRoce
                ? gid.type == IBV_GID_TYPE_ROCE_V2 && gid.gid == GidOf(ip)
                : gid.net_device == name ||
                      (gid.net_device.empty() && gid.gid != RdmaGid{} && gid.gid == net.mac);
        if (same) {
          port.gid = gid.gid;
          port.gid_index = gid.index;
          port.net_device = name;
          port.ip = ip;
          return;
        }
      }
    }
  }
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
  }
  return "unknown";
}

std::vector<RdmaPort> FindRdmaPorts() {
  std::vector<RdmaPort> ports;
  int count = 0;
  // First of all calls: a fork must not take registered pages away from this process. Kernels since
  // 5.12 see to it themselves, and then this does nothing.
  ::ibv_fork_init();
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(::ibv_get_device_list(&count),
                                                                  ::ibv_free_device_list);
  if (list == nullptr || count == 0) {
    return ports;
  }
  const auto nets = NetDevices();
  for (int i = 0; i < count; ++i) {
    ibv_device* device = list.get()[i];
    const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(::ibv_open_device(device),
                                                                      ::ibv_close_device);
    ibv_device_attr attributes{};
    if (context == nullptr || ::ibv_query_device(context.get(), &attributes) != 0 ||
        (device->transport_type != IBV_TRANSPORT_IB &&
         device->transport_type != IBV_TRANSPORT_IWARP)) {
      continue;  // Not ours to open, or a network without reliable queue pairs.
    }
    for (uint8_t number = 1; number <= attributes.phys_port_cnt; ++number) {
      ibv_port_attr state{};
      if (::ibv_query_port(context.get(), number, &state) != 0) {
        continue;
      }
      RdmaPort port;
      port.device = ::ibv_get_device_name(device);
      port.port = number;
      port.kind = device->transport_type == IBV_TRANSPORT_IWARP ? RdmaKind::kIwarp
                  : state.link_layer == IBV_LINK_LAYER_ETHERNET ? RdmaKind::kRoce
                                                                : RdmaKind::kInfiniBand;
      port.active = state.state == IBV_PORT_ACTIVE;
      port.bytes_per_second = LaneBytesPerSecond(state.active_speed) * Lanes(state.active_width);
      port.mtu_bytes = 128 << static_cast<int>(state.active_mtu);
      port.numa_node = NumaNode(*device);
      port.lid = state.lid;
      // The table is asked for all ports at once.
      const size_t places = static_cast<size_t>(std::max(state.gid_tbl_len, 1)) *
                            std::max<size_t>(attributes.phys_port_cnt, 1);
      FindAddress(port, GidTable(context.get(), number, places), nets);
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::optional<RdmaPort> ChooseRdmaPort(const std::vector<RdmaPort>& ports,
                                       std::string_view device,
                                       std::string_view bind_host) {
  const RdmaPort* best = nullptr;
  const auto rank = [&](const RdmaPort& port) {
    return std::pair(port.ip == bind_host, port.bytes_per_second);
  };
  for (const RdmaPort& port : ports) {
    if (port.usable() && (device.empty() || port.device == device) &&
        (best == nullptr || rank(port) > rank(*best))) {
      best = &port;
    }
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace heddle::comm
