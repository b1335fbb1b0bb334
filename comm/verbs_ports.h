/// \file
/// Which RDMA ports this machine has: kind of network, state, speed, where it hangs, its net device
/// and the address by which others reach it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::comm {

/// Ports of unlike kinds never talk to each other.
enum class RdmaKind : uint8_t { kInfiniBand = 1, kRoce = 2, kIwarp = 3 };
std::string_view RdmaKindName(RdmaKind kind);  ///< "infiniband", "roce", "iwarp".

using RdmaGid = std::array<std::byte, 16>;

struct RdmaPort {
  std::string device;  ///< As libibverbs calls it, for example "mlx5_0".
  uint8_t port = 1;
  RdmaKind kind = RdmaKind::kRoce;
  bool active = false;
  double bytes_per_second = 0;  ///< Of the link; 0: unknown.
  int mtu_bytes = 0;            ///< Largest packet payload.
  int numa_node = -1;           ///< -1: unknown.
  std::string net_device;       ///< Empty: none (InfiniBand without IP).
  std::string ip;               ///< Of the net device, numeric; empty: none.
  RdmaGid gid{};                ///< The port's address among its kind.
  /// Of `gid`. RoCE: version 2, of the address `ip`; -1: there is none yet, so that the port cannot
  /// be used.
  int gid_index = -1;
  uint16_t lid = 0;  ///< InfiniBand.

  bool usable() const { return active && gid_index >= 0; }
};

/// Every port of every device, usable or not. Empty where there is no RDMA. Thread: any.
std::vector<RdmaPort> FindRdmaPorts();

/// The port that a worker reached at `bind_host` should use: of the device that is called `device`
/// if not empty, else the one whose address `bind_host` is, else the fastest. Only usable ones;
/// nothing: there is none. Pure.
std::optional<RdmaPort> ChooseRdmaPort(const std::vector<RdmaPort>& ports,
                                       std::string_view device,
                                       std::string_view bind_host);

}  // namespace heddle::comm
