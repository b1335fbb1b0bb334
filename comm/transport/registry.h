/// \file
/// The transports that this program can open. Each registers how in a file of its own folder, and
/// to be linked is to be registered. Thread: any, once main runs.
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

/// What one transport is opened with.
struct TransportSettings {
  std::string bind_host = "127.0.0.1";  ///< As EndpointOptions.
  /// By name (TransportTraits::options).
  std::map<std::string, std::string> options = {};

  /// Empty: it is not set.
  std::string option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  }
};

/// A network port that one transport alone uses, usable or not, for `heddle links` to show.
struct NetworkPort {
  struct Address {
    int index = 0;
    std::string text;
    std::string type;        ///< Empty: unknown.
    std::string net_device;  ///< Empty: unknown.
  };

  std::string name;  ///< "mlx5_0/1".
  std::string device;
  int port = 1;                         ///< Of the device.
  std::string kind;                     ///< Of network.
  std::string state;                    ///< Empty: unknown.
  double bytes_per_second = 0;          ///< Of the link; 0: unknown.
  int numa_node = -1;                   ///< -1: unknown.
  std::vector<Address> addresses = {};  ///< Of its kind of network, by index.
  int address_index = -1;               ///< The one that is used; -1: there is none yet.
  std::string net_device;               ///< Empty: none.
  std::string ip;                       ///< Empty: none.
  bool usable = false;
  bool chosen = false;  ///< By a worker at the host that was asked for.
  std::string reason;   ///< Why usable, or why not.
};

/// A registration: a constant of this type at namespace scope.
class RegisteredTransport {
 public:
  /// Errors of `open`: kInvalidArgument (settings), kResourceExhausted; of an optional transport
  /// all mean that this machine or build has none, kUnavailable that one might have expected it.
  using Open = Result<std::unique_ptr<Transport>> (*)(const TransportSettings& settings);
  /// The ports of this machine; chosen are those of a worker that is reached at `bind_host`.
  using ListPorts = std::vector<NetworkPort> (*)(const std::string& bind_host);

  /// `name`: as it is declared.
  RegisteredTransport(std::string_view name, Open open, ListPorts list_ports = nullptr);
};

/// Errors: those of RegisteredTransport::Open; kInvalidArgument (an option that it does not have),
/// kUnimplemented (not linked).
Result<std::unique_ptr<Transport>> OpenTransport(std::string_view name,
                                                 const TransportSettings& settings);

struct Transports {
  std::vector<std::unique_ptr<Transport>> open;  ///< Best first.
  std::map<std::string, std::string> absent;     ///< Why the others are not among them, by name.
};
/// Those that `options` ask for. An optional one that is missing where one might expect it is
/// logged once. Errors: kInvalidArgument (names, options), those of the transports that are not
/// optional.
Result<Transports> OpenTransports(const EndpointOptions& options);

/// By the transport that uses them; only of transports that have ports of their own.
std::vector<std::pair<const TransportTraits*, std::vector<NetworkPort>>> ListNetworkPorts(
    const std::string& bind_host);

}  // namespace heddle::comm
