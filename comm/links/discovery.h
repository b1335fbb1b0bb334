/// \file
/// The network interfaces of this machine, read from sysfs, and which of them workers should use,
/// with the reason. (Ports that only one transport uses: registry.h.) The performance of a link is
/// measured (Endpoint::MeasureLink); this file finds the address to use, and explains the choice to
/// the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace heddle::comm {

enum class InterfaceKind : uint8_t {
  kPhysical,   ///< Has a device, or stands on interfaces that have one (bond, VLAN, bridge).
  kVirtual,    ///< veth, tunnel, tap …; in a container perhaps the only external interface.
  kContainer,  ///< A bridge to containers or guests of this machine, which reaches no other.
  kLoopback,
};
std::string_view InterfaceKindName(InterfaceKind kind);

struct NetworkInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::kVirtual;
  /// Kind of medium: "ethernet", "infiniband", "wireless", "bond", "vlan", "bridge", "veth",
  /// "tunnel", "loopback" or "other".
  std::string medium = "other";
  bool up = false;               ///< The operational state allows traffic.
  double bytes_per_second = 0;   ///< Rate reported by the driver; 0: unknown.
  int mtu_bytes = 0;             ///< 0: unknown.
  int numa_node = -1;            ///< -1: unknown, or a machine with one node.
  std::string driver;            ///< Empty: none.
  std::vector<std::string> ips;  ///< Numeric addresses, IPv4 first, without link-local ones.
};

/// The interfaces below `sys` (the mount point of sysfs), by name, without addresses. A file that
/// is missing, unreadable (a speed for which the driver returns EINVAL) or invalid (-1, also as an
/// unsigned number) means that the value is unknown. Empty without sysfs.
std::vector<NetworkInterface> ReadInterfaces(const std::string& sys);
/// This machine's interfaces with their addresses, including interfaces that sysfs does not show.
std::vector<NetworkInterface> FindInterfaces();

/// The network of `ip`, an address of this machine, by its interface's netmask: "10.9.0.0-24".
/// Empty: unknown.
std::string NetworkOf(const std::string& ip);

struct InterfaceVerdict {
  NetworkInterface interface;
  bool usable = false;  ///< Usable for traffic with other machines.
  bool chosen = false;  ///< The best of the usable interfaces.
  std::string reason;   ///< Why it is usable or not.
};

/// Judges the interfaces and returns them best first: physical before virtual, then by speed
/// (unknown last), then by name. Container bridges, loopback, and interfaces that are down or have
/// no address are not usable. Pure.
std::vector<InterfaceVerdict> JudgeInterfaces(std::vector<NetworkInterface> interfaces);

/// The address on which a worker should listen. `wanted` is an address or a host name (returned as
/// it is), the name of an interface (its first address is returned), or empty. If it is empty, the
/// result is the local address from which the kernel's routes reach `coordinator` (HOST:PORT); so a
/// coordinator at a loopback address means that all workers are on this machine. Sends nothing.
/// Errors: kInvalidArgument (an interface without an address, a host that cannot be resolved),
/// kUnavailable (no route).
Result<std::string> FindBindAddress(const std::string& wanted, const std::string& coordinator);

}  // namespace heddle::comm
