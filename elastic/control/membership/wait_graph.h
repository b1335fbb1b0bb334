/// \file
/// The wait-for graph of workers that run something together. The worker that complains is rarely
/// the one at fault, and a live worker may make no progress: the culprit is where the chains of
/// waits end, a worker that waits for no other and does nothing. Source of the idea: the wait-for
/// analyser of FT-HSDP (Meta).
///
///     a ──▶ b ──▶ c        c does nothing: it is the only culprit
///     a ──▶ b ──▶ a        no culprit: both wait, and neither can go on
///     a     b              no known culprit: neither waits, and neither does anything
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// A worker, as of its last message.
struct WaitNode {
  std::string name;
  bool is_heard = true;  ///< The message is recent. Nothing is concluded from an older one.
  bool waits = false;
  /// The nodes that it waits for; names of no node are ignored. Without any, a worker that waits
  /// does so for something else, such as storage.
  std::vector<std::string> waits_for = {};
  /// Since then it has done nothing, and neither begun nor ended to wait.
  Time quiet_since = {};
};

/// An immutable wait-for graph. Thread: any.
class WaitGraph {
 public:
  /// `nodes`: by rank, with unique names.
  explicit WaitGraph(std::vector<WaitNode> nodes);

  struct Culprit {
    std::string worker;
    std::vector<std::string> waiters;  ///< Workers that wait for it directly, by rank.
    std::string reason;  ///< "a waits for b waits for c, which did nothing for 4.0 s".
  };
  struct Verdict {
    std::vector<Culprit> culprits = {};  ///< By rank.
    /// Without culprits: a circle of waits, if there is one. It is found from the first stuck
    /// worker by rank, along the first wait of each.
    std::vector<std::string> circle = {};
    std::string last = {};  ///< The worker of the circle with the highest rank.
    /// Without culprits: why no worker goes on, in words. Either there is a circle, or no worker
    /// does anything and those that wait do so for something that is no node. Empty: a worker may
    /// go on.
    std::string reason = {};
  };
  /// Finds the culprits, or why no worker goes on. `limit`: how long a worker may do nothing.
  /// `patience`: how long all may do nothing while some wait for something that is no node, such as
  /// storage.
  Verdict Judge(Duration limit, Duration patience, Time now) const;
  /// The chain of waits from the farthest waiter to the worker, in words; empty if there is none.
  std::string ChainTo(const std::string& worker) const;

 private:
  using Index = size_t;
  bool IsQuiet(Index node, Duration limit, Time now) const {
    return nodes_[node].is_heard && now - nodes_[node].quiet_since >= limit;
  }
  std::vector<Index> ChainOf(Index culprit) const;
  std::string Words(const std::vector<Index>& chain) const;
  std::vector<bool> StuckAmong(Duration limit, Time now) const;
  void FindCircle(Duration limit, Time now, Verdict& verdict) const;
  void FindStandstill(Duration limit, Duration patience, Time now, Verdict& verdict) const;

  std::vector<WaitNode> nodes_;
  std::vector<std::vector<Index>> awaited_;  ///< By node: the nodes that it waits for, by rank.
  std::vector<std::vector<Index>> waiters_;  ///< By node: the nodes that wait for it, by rank.
};

/// The wait-for graph of the workers `ranks`, which run something together, by rank; lost workers
/// are left out. Only waits in the groups of `generations` count. `since`: no worker counts as
/// having done nothing from before this time. `fresh`: older messages are not recent.
WaitGraph WaitsAmong(const std::vector<std::string>& ranks,
                     const std::vector<int64_t>& generations,
                     const Roster& roster,
                     Time since,
                     Duration fresh,
                     Time now);

}  // namespace heddle::elastic
