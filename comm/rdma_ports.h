/// \file
/// Which RDMA ports this machine has, read from the kernel's own files: kind of network, state,
/// speed, where it hangs, its net device and the address by which others reach it, and whether a
/// worker can use it, with the reason. Neither a device, its rights nor libibverbs are needed: a
/// port that cannot be used is there to be shown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/discovery.h"

namespace heddle::comm {

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
  std::string character_device;    ///< "uverbs0", through which programs use it; empty: none.
  std::vector<RdmaGidEntry> gids;  ///< Those that are set, by index.
  std::string net_device;          ///< Empty: none (InfiniBand without IP).
  std::string ip;                  ///< Of the net device, numeric; empty: none.
  RdmaGid gid{};                   ///< The port's address among its kind.
  /// Of `gid`. RoCE: version 2, of the address `ip`. -1: there is none yet.
  int gid_index = -1;
  bool usable = false;
  std::string reason;  ///< Why, or why not.
};

/// Every port of every device below `sys` (the mount point of sysfs), usable or not, by name.
/// `interfaces`: the machine's, with their addresses. Files that are missing, refused or nonsense
/// mean unknown. Empty where there is no RDMA. Thread: any.
std::vector<RdmaPort> ReadRdmaPorts(const std::string& sys,
                                    std::span<const NetworkInterface> interfaces);
/// This machine's; usable are those that this process may open and this program was built for.
std::vector<RdmaPort> FindRdmaPorts();

/// The port that a worker reached at `bind_host` should use: of the device that is called `device`
/// if not empty, else the one whose address `bind_host` is, else the fastest. Only usable ones;
/// nothing: there is none. Pure.
std::optional<RdmaPort> ChooseRdmaPort(const std::vector<RdmaPort>& ports,
                                       std::string_view device,
                                       std::string_view bind_host);

/// Whether this program was built with libibverbs and librdmacm.
bool BuiltWithVerbs();

}  // namespace heddle::comm
