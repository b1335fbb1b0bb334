/// \file
/// The transports that this program can open. Each transport registers itself in a file of its
/// folder, so that linking the file registers the transport. Thread: any, once main runs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"
#include "comm/cost/transport_traits.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// The settings with which a transport is opened.
struct TransportSettings {
  std::string bind_host = "127.0.0.1";  ///< EndpointOptions::bind_host.
  /// Option values by name (TransportTraits::options).
  std::map<std::string, std::string> options = {};

  /// The value of an option; empty: not set.
  std::string option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  }
};

/// A network port that only one transport uses, usable or not, as `heddle links` shows it.
struct NetworkPort {
  struct Address {
    int index = 0;
    std::string text;
    std::string type;        ///< Empty: unknown.
    std::string net_device;  ///< Empty: unknown.
  };

  std::string name;  ///< Device and port, "mlx5_0/1".
  std::string device;
  int port = 1;                         ///< Port number within the device.
  std::string kind;                     ///< Kind of network.
  std::string state;                    ///< Empty: unknown.
  double bytes_per_second = 0;          ///< Link rate; 0: unknown.
  int numa_node = -1;                   ///< -1: unknown.
  std::vector<Address> addresses = {};  ///< Addresses in the port's kind of network, by index.
  int address_index = -1;               ///< Address::index that is used; -1: there is none yet.
  std::string net_device;               ///< Empty: none.
  std::string ip;                       ///< Empty: none.
  bool usable = false;
  bool chosen = false;  ///< A worker at the given bind host uses it.
  std::string reason;   ///< Why it is usable or not.
};

/// Registers a transport; a constant of this type is defined at namespace scope.
class RegisteredTransport {
 public:
  /// Opens the transport. Errors: kInvalidArgument (settings), kResourceExhausted. For an optional
  /// transport all but kInvalidArgument mean that this machine or build does not have it;
  /// kUnavailable means that it was to be expected here.
  using Open = Result<std::unique_ptr<Transport>> (*)(const TransportSettings& settings);
  /// Lists the ports of this machine; `chosen` are those of a worker that is reached at
  /// `bind_host`.
  using ListPorts = std::vector<NetworkPort> (*)(const std::string& bind_host);

  /// `name`: the name under which the transport is declared.
  RegisteredTransport(std::string_view name, Open open, ListPorts list_ports = nullptr);
};

/// Opens the transport `name`. Errors: those of RegisteredTransport::Open; kInvalidArgument (an
/// unknown option), kUnimplemented (the transport is not linked in).
Result<std::unique_ptr<Transport>> OpenTransport(std::string_view name,
                                                 const TransportSettings& settings);

struct Transports {
  std::vector<std::unique_ptr<Transport>> open;  ///< Opened transports, best first.
  std::map<std::string, std::string> absent;     ///< Reasons why others are not open, by name.
};
/// Opens the transports that `options` ask for. The absence of an optional transport that was to be
/// expected here is logged once. Errors: kInvalidArgument (names, options), those of transports
/// that are not optional.
Result<Transports> OpenTransports(const EndpointOptions& options);

/// This machine's network ports by the transport that uses them, for transports that have ports of
/// their own.
std::vector<std::pair<const TransportTraits*, std::vector<NetworkPort>>> ListNetworkPorts(
    const std::string& bind_host);

}  // namespace heddle::comm
