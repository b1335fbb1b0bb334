/// \file
/// What each member of a group has of a tensor, and how a node's work is divided among members:
/// placements with the elements that they come to.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor/shape.h"
#include "engine/graph/operator.h"
#include "engine/graph/sharding/layout.h"

namespace heddle::graph {

/// [begin, end) of one dimension. All empty ranges are [0, 0).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  bool empty() const { return begin == end; }
  bool contains(const Range& inner) const {
    return inner.empty() || (begin <= inner.begin && inner.end <= end);
  }
  friend bool operator==(const Range&, const Range&) = default;
};

/// How the work of a node is divided: the units of its rule that each member has.
struct Division {
  int64_t units = 1;
  int cut = -1;               ///< Index in Layout::cuts; -1: nothing is cut.
  std::vector<Range> shares;  ///< By position; empty: every member does all of it.

  /// Whether the member at `position` runs the node.
  bool Runs(int position) const {
    return shares.empty() || !shares[static_cast<size_t>(position)].empty();
  }
};

/// What each member has of a tensor. kReplicate: all of it. kShard: a range along `dim`; ranges of
/// neighbours may overlap (Placement::cover). kPartial: addends (or candidates of the largest) of
/// the elements of a range along `dim`; `dim` is -1 when they are of all elements, and a member's
/// range then [0, 1), or empty when it has no part in the sum.
struct Sharding {
  Placement::Kind kind = Placement::Kind::kReplicate;
  int dim = -1;
  ReduceOp op = ReduceOp::kSum;  ///< For kPartial.
  int cut = -1;                  ///< Index in Layout::cuts of the division that it comes from.
  std::vector<Range> held;       ///< By position; empty for kReplicate.

  bool partial() const { return kind == Placement::Kind::kPartial; }
};

/// Whether two shardings give every member the same elements of the same meaning.
bool Alike(const Sharding& a, const Sharding& b);

/// The extent of a dimension; 1 for a scalar.
int64_t ExtentOf(const Shape& shape, int dim);

/// The members' shares of `items`, as `cut` says.
std::vector<Range> SharesOf(const Cut& cut, int64_t items);

/// The units of `to` that a share of `from` units has a part of: [floor(a·to/from),
/// ceil(b·to/from)). An empty share has none.
Range Outwards(Range share, int64_t from, int64_t to);

/// Ranges without what an earlier member holds too: every element has one owner, the first of its
/// holders. `held` ascends.
std::vector<Range> OwnersOf(const std::vector<Range>& held);

/// Whether the ranges are disjoint and make up [0, extent), in ascending order.
bool Tiles(const std::vector<Range>& ranges, int64_t extent);

/// What members hold of a tensor of `shape` under a rule's placement; nothing: the dimension is not
/// in whole units, or its units are not those of the division.
std::optional<Sharding> ShardingOf(const Placement& placement,
                                   const Shape& shape,
                                   const Division& division);

/// What members hold of a tensor that a layout places.
Sharding ShardingOf(const Placed& placed, const Shape& shape, const Layout& layout);

/// What members have of a tensor of `shape`, as ranges along `dim`: whole, or empty, if the tensor
/// is not cut along it.
std::vector<Range> RangesAlong(const Sharding& sharding, int dim, const Shape& shape, int members);

/// The part of a tensor of `shape` that the member at `position` has; nothing: it has none.
std::optional<Box> BoxOf(const Sharding& sharding, const Shape& shape, int position);

}  // namespace heddle::graph
