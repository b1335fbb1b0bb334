/// \file
/// Which RDMA ports this machine has, read from the kernel's own files: kind of network, state,
/// speed, where it hangs, its net device and the address by which others reach it, and whether a
/// worker can use it, with the reason. Neither a device, its rights nor libibverbs are needed: a
/// port that cannot be used is there to be shown.
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

/// A worker uses no more ports.
inline constexpr size_t kMostRails = 8;

/// Ports of unlike kinds never talk to each other.
enum class RdmaKind : uint8_t { kUnknown = 0, kInfiniBand = 1, kRoce = 2, kIwarp = 3 };
std::string_view RdmaKindName(RdmaKind kind);  ///< "unknown", "infiniband", "roce", "iwarp".

using RdmaGid = std::array<std::byte, 16>;

struct RdmaGidEntry {
  int index = 0;
  std::string text;  ///< As sysfs writes it.
  RdmaGid gid{};
  std::string type;        ///< "IB/RoCE v1", "RoCE v2"; empty: unknown.
  std::string net_device;  ///< Empty: unknown.
};

struct RdmaPort {
  std::string device;  ///< As libibverbs calls it, for example "mlx5_0".
  uint8_t port = 1;
  RdmaKind kind = RdmaKind::kUnknown;
  std::string state;               ///< "ACTIVE", "DOWN" …; empty: unknown.
  double bytes_per_second = 0;     ///< Of the link; 0: unknown.
  int numa_node = -1;              ///< -1: unknown.
  bool near = true;                ///< This process may run on processors of that node.
  std::string character_device;    ///< "uverbs0", through which programs use it; empty: none.
  std::vector<RdmaGidEntry> gids;  ///< Those that are set, by index.
  std::string net_device;          ///< Empty: none (InfiniBand without IP).
  std::string ip;                  ///< Of the net device, numeric; empty: none.
  RdmaGid gid{};                   ///< The port's address among its kind.
  /// Of `gid`. RoCE: version 2, of the address `ip`. -1: there is none yet.
  int gid_index = -1;
  bool usable = false;
  std::string reason;  ///< Why, or why not.

  std::string name() const;  ///< "mlx5_0/1".
};

/// Every port of every device below `sys` (the mount point of sysfs), usable or not, by name.
/// `interfaces`: the machine's, with their addresses. Files that are missing, refused or nonsense
/// mean unknown. Empty where there is no RDMA. Thread: any.
std::vector<RdmaPort> ReadRdmaPorts(const std::string& sys,
                                    std::span<const NetworkInterface> interfaces);
/// This machine's; usable are those that this process may open and this program was built for.
std::vector<RdmaPort> FindRdmaPorts();

/// Whether `devices`, a list "mlx5_0,mlx5_1/2" of devices and ports with ',' between, has this
/// port. An empty list has all.
bool IsAmong(const RdmaPort& port, std::string_view devices);

/// The ports that a worker reached at `bind_host` should use, in the order of `ports`: the usable
/// ones among `devices` (IsAmong), at most kMostRails. If there are more, the one whose address
/// `bind_host` is and the fastest; of an iWARP device one port, as librdmacm has one handle for all
/// of them. Pure.
std::vector<RdmaPort> ChooseRdmaPorts(const std::vector<RdmaPort>& ports,
                                      std::string_view devices,
                                      std::string_view bind_host);

/// This machine's ports for people (RegisteredTransport::ListPorts).
std::vector<NetworkPort> ListRdmaPorts(const std::string& bind_host);

/// Whether one of `processors` is of NUMA node `node` below `sys`; so it is where the node is
/// unknown.
bool IsNear(const std::string& sys, int node, std::span<const int> processors);

/// Whether this program was built with libibverbs and librdmacm.
bool BuiltWithVerbs();

}  // namespace heddle::comm
