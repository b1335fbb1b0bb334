/// \file
/// Chooses the algorithm of a collective among a group of workers and predicts its time. Pure: comm
/// runs the same choice that the planner's simulator prices. Model: a message of b bytes over a
/// link takes latency + b / bytes_per_second (Hockney's model); each further message of a round
/// costs its sender a fixed time (the overhead of LogP), and a reduction that does not overlap with
/// communication costs memory traffic. Members with the same links make the same choice.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/cost/links.h"

namespace heddle::comm {

/// The algorithm of a reduce-scatter or all-gather of one share per member. Both algorithms send no
/// more bytes than needed for shares of any sizes. Padding shares to the largest would send more
/// over the same links and never cost less.
enum class ShareAlgorithm : uint8_t {
  kDirect,  ///< One round: every member sends each other member the bytes that it needs.
  kRing,    ///< A ring in order of positions; only links between neighbours are used.
};

enum class AllReduceAlgorithm : uint8_t {
  kDirect,             ///< One round: every member sends everything to every other and reduces.
  kRecursiveDoubling,  ///< Pairs at distance 1, 2, 4 … exchange and reduce: log2 rounds.
  kTwoPhase,           ///< Reduce-scatter, then all-gather, each direct or by ring: fewest bytes.
  kHierarchical,       ///< Inside islands, across islands, then inside islands again.
};

/// Sizes of the shares of a reduce-scatter or all-gather.
struct ShareSizes {
  int64_t total = 0;     ///< Bytes of all shares.
  int64_t largest = 0;   ///< Bytes of the largest share.
  int64_t smallest = 0;  ///< Bytes of the smallest share.
  static ShareSizes Even(int64_t total, int members);
};

struct ShareChoice {
  ShareAlgorithm algorithm = ShareAlgorithm::kDirect;
  double seconds = 0;  ///< Predicted time.
};

struct AllReduceChoice {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kDirect;
  int hierarchy = -1;  ///< kHierarchical: index into Topology::hierarchies().
  /// kHierarchical: members of each island that each carry a slice across; 1: a leader carries all.
  int crossings = 0;
  double seconds = 0;  ///< Predicted time.
};

/// The properties of a group's links on which the flat algorithms (without islands) depend. Pure.
class FlatLinks {
 public:
  /// The links among the members `ranks` of `links`, in this order.
  static FlatLinks Of(const LinkTable& links, std::span<const int> ranks);
  /// Links that all equal `link`.
  static FlatLinks Uniform(int members, const Link& link);

  int members() const { return members_; }
  /// The choice for a reduce-scatter. `widening`: ratio of the size of a partial result to that of
  /// an element (2 for sums of 16-bit floats, which are added in fp32). It applies to algorithms
  /// that send partial results; the direct exchange sends elements.
  ShareChoice ReduceScatter(const ShareSizes& sizes, int widening) const;
  ShareChoice AllGather(const ShareSizes& sizes) const { return ReduceScatter(sizes, 1); }
  /// The choice for an all-reduce; never kHierarchical.
  AllReduceChoice AllReduce(int64_t bytes, int widening) const;

 private:
  struct Pace {
    double latency = 0;
    double seconds_per_byte = 0;
    double Seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
  };
  double Direct(double bytes) const;
  /// Seconds that `messages` messages to and from each member cost if members share cores.
  double Turns(int messages) const;

  int members_ = 0;
  double crowding_ = 1;  ///< Crowding of the worst member.
  Pace any_;       ///< Worst latency of a pair; worst member's mean time per byte over its links.
  Pace ring_;      ///< Worst of the links from each position to the next.
  Pace doubling_;  ///< Sums over the rounds of recursive doubling of each round's worst link.
  int doubling_rounds_ = 0;
};

/// A division of a group into islands. Crossing number l joins member number l of every island.
struct Hierarchy {
  /// Positions in the group, by island; members with the best links to other islands come first.
  std::vector<std::vector<int>> islands;
  std::vector<FlatLinks> inside;  ///< Links inside each island.
  std::vector<FlatLinks>
      across;  ///< Links of each crossing; the smallest island's size is their number.
};

/// The properties of a group's links on which its collectives depend; made once per group. Pure.
class Topology {
 public:
  /// The topology of `group` (ranks into `links`, by position). Takes time proportional to the
  /// number of pairs.
  static Topology Of(const LinkTable& links, std::span<const int> group);
  /// The topology if no links are known: all links are equal and there are no islands.
  static Topology Uniform(int members, const Link& link = {});

  const FlatLinks& flat() const { return flat_; }
  /// The divisions into islands that the links suggest, at most three. The method is single linkage
  /// by the time that a message of 1 MiB takes, cut at the widest gaps: links inside an island are
  /// at least twice as good as the next worse link anywhere in the group.
  const std::vector<Hierarchy>& hierarchies() const { return hierarchies_; }
  AllReduceChoice AllReduce(int64_t bytes, int widening) const;

 private:
  FlatLinks flat_;
  std::vector<Hierarchy> hierarchies_;
};

}  // namespace heddle::comm
