/// \file
/// Rails: the RDMA ports of a worker, each in a network of its own or in one with others. What a
/// worker says of its rails, and which rail of one worker talks to which of another. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/transport/verbs/rdma_ports.h"

namespace heddle::comm {

/// One of a worker's ports as its peers hear of it.
struct Rail {
  RdmaKind kind = RdmaKind::kUnknown;
  double bytes_per_second = 0;  ///< Of the link; 0: unknown.
  bool near = true;             ///< To the worker's processors (RdmaPort::near).
  std::string network = {};     ///< Rails of one network reach each other; empty: unknown.
  std::string listener = {};    ///< Where its handshakes are received: "host:port", numeric.
};

/// "roce/12500000000/near/10.9.0.0-24/10.9.0.1:4711", one after the other with ',' between.
std::string FormatRails(std::span<const Rail> rails);
/// What a peer said. Errors: kInvalidArgument: none, more than kMostRails, or another form.
Result<std::vector<Rail>> ParseRails(std::string_view text);

/// A route from one worker to another: positions among their rails.
struct RailPair {
  size_t own = 0;
  size_t peer = 0;
  bool operator==(const RailPair&) const = default;
};

/// The rails for a connection between two workers, in the order in which they are to be tried; none
/// where no kind of theirs is the same. Only rails of one network are joined, or, where the two
/// have no network in common, any of one kind: there may be routers. Of them the fastest come
/// first, and of equally fast ones those near to both ends' processors; `number`, the connection's,
/// chooses among the best, so that connections spread over them. The attempts that follow use
/// rails that were not tried before they use one again. `avoid`: pairs that have failed lately;
/// they are left out, or, where there are no others, only the first of them is tried.
std::vector<RailPair> ChooseRails(std::span<const Rail> own,
                                  std::span<const Rail> peer,
                                  size_t number,
                                  std::span<const RailPair> avoid);

}  // namespace heddle::comm
