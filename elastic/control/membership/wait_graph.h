/// \file
/// Who waits for whom. Who complains is not who is at fault, and alive is not progressing: the
/// culprit is where the chains of waits end, a worker that waits for nobody and does nothing.
/// Source of the idea: the wait-for analyser of FT-HSDP (Meta).
///
///     a ──▶ b ──▶ c        c does nothing: it is the culprit, and nobody else is
///     a ──▶ b ──▶ a        nobody is: all wait, and none can go on
///     a     b              nobody is known to be: neither does anything
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/control/membership/roster.h"

namespace heddle::elastic {

/// A worker, as its last word has it.
struct WaitNode {
  std::string name;
  bool is_heard = true;  ///< That word is of now. Of others nothing is concluded.
  bool waits = false;
  /// Names that are no node's count as none. Of one that waits and names nobody nothing is
  /// concluded either: it waits for storage, say.
  std::vector<std::string> waits_for = {};
  /// It has done nothing since, nor begun or ended to wait.
  Time quiet_since = {};
};

/// Immutable. Thread: any.
class WaitGraph {
 public:
  /// `nodes` by rank, no name twice.
  explicit WaitGraph(std::vector<WaitNode> nodes);

  struct Culprit {
    std::string worker;
    std::vector<std::string> waiters;  ///< Who waits for it itself, by rank.
    std::string reason;  ///< "a waits for b waits for c, which did nothing for 4.0 s".
  };
  struct Verdict {
    std::vector<Culprit> culprits = {};  ///< By rank.
    /// Without culprits: of those whose chains have no end, the ones that wait in a circle. It is
    /// found from the first such by rank along the first waits.
    std::vector<std::string> circle = {};
    std::string last = {};  ///< Of the circle, by rank.
    /// Without culprits: why nobody goes on, in words. That is a circle, or all do nothing, and
    /// whom they wait for, if they do, is no member. Empty: somebody may go on.
    std::string reason = {};
  };
  /// `limit`: how long who does nothing may do so. `patience`: how long all may do nothing of whom
  /// some wait for what is no member, storage, say.
  Verdict Judge(Duration limit, Duration patience, Time now) const;
  /// The longest chain that ends at the worker, in words; empty: nobody waits for it.
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
  std::vector<std::vector<Index>> awaited_;  ///< By node: whom it waits for, by rank.
  std::vector<std::vector<Index>> waiters_;  ///< The same, backwards.
};

/// Of workers that run something together, by rank; those that are gone are left out. Only waits in
/// the groups of `generations` count. `since`: nobody owes anything done before. `fresh`: a word
/// that is older is not of now.
WaitGraph WaitsAmong(const std::vector<std::string>& ranks,
                     const std::vector<int64_t>& generations,
                     const Roster& roster,
                     Time since,
                     Duration fresh,
                     Time now);

}  // namespace heddle::elastic
