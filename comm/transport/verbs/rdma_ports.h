/// \file
/// The RDMA ports of this machine, read from sysfs: kind of network, state, speed, NUMA node, net
/// device and address, and whether a worker can use the port, with the reason. Neither access to
/// the device nor libibverbs is needed, so that unusable ports can be shown, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/links/discovery.h"
#include "comm/transport/registry.h"

namespace heddle::comm {

/// The most ports that a worker uses.
inline constexpr size_t kMaxRails = 8;

/// The kind of a port's network. Ports of different kinds cannot communicate.
enum class RdmaKind : uint8_t { kUnknown = 0, kInfiniBand = 1, kRoce = 2, kIwarp = 3 };
std::string_view RdmaKindName(RdmaKind kind);  ///< Name: "unknown", "infiniband", "roce", "iwarp".

using RdmaGid = std::array<std::byte, 16>;

struct RdmaGidEntry {
  int index = 0;
  std::string text;  ///< As sysfs writes it.
  RdmaGid gid{};
  std::string type;        ///< Type in sysfs, "IB/RoCE v1" or "RoCE v2"; empty: unknown.
  std::string net_device;  ///< Empty: unknown.
};

struct RdmaPort {
  std::string device;  ///< Name in libibverbs, for example "mlx5_0".
  uint8_t port = 1;
  RdmaKind kind = RdmaKind::kUnknown;
  std::string state;               ///< State in sysfs, "ACTIVE", "DOWN" …; empty: unknown.
  double bytes_per_second = 0;     ///< Link rate; 0: unknown.
  int numa_node = -1;              ///< -1: unknown.
  bool near = true;                ///< This process may run on processors of that node.
  std::string character_device;    ///< Device file for user programs, "uverbs0"; empty: none.
  std::vector<RdmaGidEntry> gids;  ///< The GID table's entries that are set, by index.
  std::string net_device;          ///< Empty: none (InfiniBand without IP).
  std::string ip;                  ///< Numeric address of the net device; empty: none.
  RdmaGid gid{};                   ///< The GID by which peers reach the port.
  /// Index of `gid`; for RoCE that of the version 2 GID with address `ip`. -1: there is none yet.
  int gid_index = -1;
  bool usable = false;
  std::string reason;  ///< Why the port is usable or not.

  std::string name() const;  ///< Device and port, "mlx5_0/1".
};

/// Every port of every device below `sys` (the mount point of sysfs), usable or not, by name.
/// `interfaces`: the machine's network interfaces with their addresses. A file that is missing,
/// unreadable or invalid means that the value is unknown. Empty without RDMA. Thread: any.
std::vector<RdmaPort> ReadRdmaPorts(const std::string& sys,
                                    std::span<const NetworkInterface> interfaces);
/// The ports of this machine. Usable are ports whose device this process may open, if this program
/// was built with libibverbs.
std::vector<RdmaPort> FindRdmaPorts();

/// Whether `devices`, a list of devices and ports like "mlx5_0,mlx5_1/2", includes the port. An
/// empty list includes all.
bool IsAmong(const RdmaPort& port, std::string_view devices);

/// The ports that a worker reached at `bind_host` should use, in the order of `ports`: the usable
/// ones among `devices` (IsAmong), at most kMaxRails. If there are more, the port with address
/// `bind_host` and the fastest are used. Of an iWARP device only one port is used, because
/// librdmacm has one handle for all of its ports. Pure.
std::vector<RdmaPort> ChooseRdmaPorts(const std::vector<RdmaPort>& ports,
                                      std::string_view devices,
                                      std::string_view bind_host);

/// This machine's ports for `heddle links` (RegisteredTransport::ListPorts).
std::vector<NetworkPort> ListRdmaPorts(const std::string& bind_host);

/// Whether one of `processors` belongs to NUMA node `node` below `sys`; true if the node is
/// unknown.
bool IsNear(const std::string& sys, int node, std::span<const int> processors);

/// Whether this program was built with libibverbs and librdmacm.
bool BuiltWithVerbs();

}  // namespace heddle::comm
