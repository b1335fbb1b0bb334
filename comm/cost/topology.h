/// \file
/// Which algorithm a collective takes among a group of workers, and how long it is predicted to
/// take. Pure: comm runs the very choice that the planner's simulator prices. Model: a message of b
/// bytes over a link takes latency + b / bytes_per_second (Hockney's model); each further message
/// of a round costs its sender a fixed time (the overhead of LogP), and bytes that are folded with
/// nothing to overlap them cost memory traffic. Every member that holds the same links chooses
/// alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/cost/links.h"

namespace heddle::comm {

/// How an exchange of shares runs, one a member. Both send no byte more than needed, whatever the
/// shares' sizes; padding them to the largest would send more over the same links, so that no cost
/// could choose it.
enum class ShareAlgorithm : uint8_t {
  kDirect,  ///< One round: everyone sends each member what it needs.
  kRing,    ///< Around a ring in order of positions: neighbours' links alone.
};

enum class AllReduceAlgorithm : uint8_t {
  kDirect,             ///< Everyone sends everything to everyone and folds: one round.
  kRecursiveDoubling,  ///< Pairs at distance 1, 2, 4 … exchange and fold: log2 rounds.
  kTwoPhase,           ///< Reduce-scatter, then all-gather, each direct or by ring: fewest bytes.
  kHierarchical,       ///< Inside islands, across them, inside again.
};

/// Sizes of an exchange of shares.
struct ShareSizes {
  int64_t total = 0;     ///< Bytes of all shares.
  int64_t largest = 0;   ///< Bytes of the largest share …
  int64_t smallest = 0;  ///< … and of the smallest.
  static ShareSizes Even(int64_t total, int members);
};

struct ShareChoice {
  ShareAlgorithm algorithm = ShareAlgorithm::kDirect;
  double seconds = 0;  ///< Predicted.
};

struct AllReduceChoice {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kDirect;
  int hierarchy = -1;  ///< kHierarchical: index into Topology::hierarchies().
  /// kHierarchical: members of each island that carry a slice across; 1: a leader carries all.
  int crossings = 0;
  double seconds = 0;  ///< Predicted.
};

/// A group's links without islands: what the flat algorithms depend on. Pure.
class FlatLinks {
 public:
  /// Links of the members `ranks` of `links`, in this order.
  static FlatLinks Of(const LinkTable& links, std::span<const int> ranks);
  /// All links alike.
  static FlatLinks Uniform(int members, const Link& link);

  int members() const { return members_; }
  /// `widening`: size of a partial result over that of its element (2 for sums of 16-bit floats,
  /// which are folded in fp32). It is paid where partial results travel; the direct exchange sends
  /// elements.
  ShareChoice ReduceScatter(const ShareSizes& sizes, int widening) const;
  ShareChoice AllGather(const ShareSizes& sizes) const { return ReduceScatter(sizes, 1); }
  /// Never kHierarchical.
  AllReduceChoice AllReduce(int64_t bytes, int widening) const;

 private:
  struct Pace {
    double latency = 0;
    double seconds_per_byte = 0;
    double Seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
  };
  double Direct(double bytes) const;
  /// What so many messages to and from each member cost where members take turns on cores.
  double Turns(int messages) const;

  int members_ = 0;
  double crowding_ = 1;  ///< The worst member's.
  Pace any_;       ///< Worst latency of a pair, worst member's mean time a byte over its links.
  Pace ring_;      ///< Worst of the links from each position to the next.
  Pace doubling_;  ///< Sums over the rounds of the worst link of each.
  int doubling_rounds_ = 0;
};

/// A division of a group into islands. Crossing l joins the members number l of all islands.
struct Hierarchy {
  /// Positions in the group, by island; those with the best links to other islands first.
  std::vector<std::vector<int>> islands;
  std::vector<FlatLinks> inside;  ///< By island.
  std::vector<FlatLinks>
      across;  ///< By crossing; as many crossings as the smallest island has members.
};

/// All that a group's links mean for its collectives; made once a group. Pure.
class Topology {
 public:
  /// Of `group` (ranks into `links`, ascending). Takes time in proportion to the pairs.
  static Topology Of(const LinkTable& links, std::span<const int> group);
  /// Nothing is known: all links alike, no islands.
  static Topology Uniform(int members, const Link& link = {});

  const FlatLinks& flat() const { return flat_; }
  /// The divisions into islands that the links show, at most three: members belong together when
  /// their link is at least twice as good as the next worse one anywhere in the group (single
  /// linkage, cut at the widest gaps of the time that a message of 1 MiB takes).
  const std::vector<Hierarchy>& hierarchies() const { return hierarchies_; }
  AllReduceChoice AllReduce(int64_t bytes, int widening) const;

 private:
  FlatLinks flat_;
  std::vector<Hierarchy> hierarchies_;
};

}  // namespace heddle::comm
