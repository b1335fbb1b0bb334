/// \file
/// Rails: the RDMA ports of a worker, which are in one network or in several. This file has the
/// text form in which a worker announces its rails, and the choice of the rails that connect two
/// workers. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/transport/verbs/rdma_ports.h"

namespace heddle::comm {

/// One of a worker's ports as announced to its peers.
struct Rail {
  RdmaKind kind = RdmaKind::kUnknown;
  double bytes_per_second = 0;  ///< Link rate; 0: unknown.
  bool near = true;             ///< The port is near the worker's processors (RdmaPort::near).
  std::string network = {};     ///< Rails of one network reach each other; empty: unknown.
  std::string listener = {};    ///< Where its handshakes are received: "host:port", numeric.
};

/// The rails as text, separated by ',': "roce/12500000000/near/10.9.0.0-24/10.9.0.1:4711".
std::string FormatRails(std::span<const Rail> rails);
/// Parses a peer's rails. Errors: kInvalidArgument (no rails, more than kMaxRails, or another
/// format).
Result<std::vector<Rail>> ParseRails(std::string_view text);

/// A route from one worker to another, as indices of their rails.
struct RailPair {
  size_t own = 0;
  size_t peer = 0;
  bool operator==(const RailPair&) const = default;
};

/// Chooses the rails for a connection between two workers, in the order in which to try them; none
/// if the two have no kind in common. Only rails of one network are paired or, if the two workers
/// have no network in common, any rails of one kind, because there may be routers. The fastest
/// pairs come first, and among equally fast ones those near to both ends' processors. `number`, the
/// connection's number, chooses among the best pairs, so that connections spread over them. Later
/// attempts use rails that were not tried yet before they use one again. `avoid`: pairs that have
/// failed recently; they are left out or, if there are no others, only the first of them is tried.
std::vector<RailPair> ChooseRails(std::span<const Rail> own,
                                  std::span<const Rail> peer,
                                  size_t number,
                                  std::span<const RailPair> avoid);

}  // namespace heddle::comm
