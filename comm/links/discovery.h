/// \file
/// The network interfaces that join this machine to others, read from the kernel's own files, and
/// which of them workers should use, with the reason (ports that one transport alone uses:
/// registry.h). What a link really gives is measured (Endpoint::MeasureLink); this is how the
/// address to measure at is found, and what a person reads when it was the wrong one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::comm {

enum class InterfaceKind : uint8_t {
  kPhysical,   ///< Has a device, or stands on interfaces that have one (bond, VLAN, bridge).
  kVirtual,    ///< veth, tunnel, tap …: in a container perhaps the only way out.
  kContainer,  ///< A bridge of the machine's own containers or guests: nobody else is behind it.
  kLoopback,
};
std::string_view InterfaceKindName(InterfaceKind kind);

struct NetworkInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::kVirtual;
  /// "ethernet", "infiniband", "wireless", "bond", "vlan", "bridge", "veth", "tunnel", "loopback",
  /// "other".
  std::string medium = "other";
  bool up = false;               ///< Its operational state allows traffic.
  double bytes_per_second = 0;   ///< As the driver says; 0: unknown.
  int mtu_bytes = 0;             ///< 0: unknown.
  int numa_node = -1;            ///< -1: unknown, or a machine with one.
  std::string driver;            ///< Empty: none.
  std::vector<std::string> ips;  ///< Numeric; those of IPv4 first, none that is link-local.
};

/// The interfaces below `sys` (the mount point of sysfs), by name; without addresses. Files that
/// are missing, unreadable (a speed that the driver refuses with EINVAL) or nonsense (-1, also as
/// an unsigned number) mean unknown. Empty where there is no sysfs.
std::vector<NetworkInterface> ReadInterfaces(const std::string& sys);
/// This machine's interfaces with their addresses; those that sysfs does not show, too.
std::vector<NetworkInterface> FindInterfaces();

/// The network of `ip`, an address of this machine, by its interface's mask: "10.9.0.0-24". Empty:
/// unknown.
std::string NetworkOf(const std::string& ip);

struct InterfaceVerdict {
  NetworkInterface interface;
  bool usable = false;  ///< For traffic with other machines.
  bool chosen = false;  ///< The best of the usable ones.
  std::string reason;   ///< Why, or why not.
};

/// Best first: physical before virtual, then by speed (unknown ones last), then by name. Bridges of
/// containers, loopback, and what is down or has no address are not usable. Pure.
std::vector<InterfaceVerdict> JudgeInterfaces(std::vector<NetworkInterface> interfaces);

/// The address that a worker should listen at. `wanted`: an address or a host's name
/// (returned as it is), the name of an interface (its first address), or nothing: then the address
/// from which the kernel's routes reach `coordinator` (HOST:PORT), so that a coordinator at a
/// loopback address means workers of this machine alone. Sends nothing. Errors: kInvalidArgument
/// (an interface without an address, a host that cannot be resolved), kUnavailable (no route).
Result<std::string> FindBindAddress(const std::string& wanted, const std::string& coordinator);

}  // namespace heddle::comm
