#include "engine/graph/sharding/sharding.h"

#include <algorithm>
#include <numeric>

namespace heddle::graph {
namespace {

using Kind = Placement::Kind;

Range RangeOf(int64_t begin, int64_t end) {
  return begin < end ? Range{begin, end} : Range{};
}

Range Times(Range range, int64_t factor) {
  return {range.begin * factor, range.end * factor};
}

}  // namespace

bool Alike(const Sharding& a, const Sharding& b) {
  if (a.kind != b.kind || a.kind == Kind::kReplicate) {
    return a.kind == b.kind;
  }
  return a.dim == b.dim && a.held == b.held && (!a.partial() || a.op == b.op);
}

int64_t ExtentOf(const Shape& shape, int dim) {
  return shape.empty() ? 1 : shape[static_cast<size_t>(dim)];
}

std::vector<Range> SharesOf(const Cut& cut, int64_t items) {
  const int units = std::accumulate(cut.units.begin(), cut.units.end(), 0);
  std::vector<Range> shares;
  int before = 0;
  for (const int share : cut.units) {
    shares.push_back(
        RangeOf(UnitEdge(items, units, before), UnitEdge(items, units, before + share)));
    before += share;
  }
  return shares;
}

Range Outwards(Range share, int64_t from, int64_t to) {
  return RangeOf(share.begin * to / from, (share.end * to + from - 1) / from);
}

std::vector<Range> OwnersOf(const std::vector<Range>& held) {
  std::vector<Range> owned;
  int64_t taken = 0;
  for (const Range& range : held) {
    owned.push_back(RangeOf(std::max(range.begin, taken), range.end));
    taken = std::max(taken, range.end);
  }
  return owned;
}

bool Tiles(const std::vector<Range>& ranges, int64_t extent) {
  int64_t next = 0;
  for (const Range& range : ranges) {
    if (!range.empty()) {
      if (range.begin != next) {
        return false;
      }
      next = range.end;
    }
  }
  return next == extent;
}

std::optional<Sharding> ShardingOf(const Placement& placement,
                                   const Shape& shape,
                                   const Division& division) {
  Sharding sharding{.kind = placement.kind, .op = placement.op, .cut = division.cut, .held = {}};
  if (placement.kind == Kind::kReplicate) {
    return Sharding{};
  }
  if (placement.kind == Kind::kPartial && !placement.cover) {
    for (const Range& share : division.shares) {
      sharding.held.push_back(share.empty() ? Range{} : Range{0, 1});
    }
    return sharding;
  }
  sharding.dim = placement.dim;
  const int64_t extent = ExtentOf(shape, placement.dim);
  const int64_t units = extent / placement.unit;
  if (extent % placement.unit != 0 || (!placement.cover && units != division.units)) {
    return std::nullopt;
  }
  for (const Range& share : division.shares) {
    sharding.held.push_back(Times(Outwards(share, division.units, units), placement.unit));
  }
  return sharding;
}

Sharding ShardingOf(const Placed& placed, const Shape& shape, const Layout& layout) {
  const Placement& placement = placed.placement;
  if (placement.kind == Kind::kReplicate) {
    return {};
  }
  const int64_t units =
      placement.cover ? placed.covered : ExtentOf(shape, placement.dim) / placement.unit;
  const Cut& cut = layout.cuts[static_cast<size_t>(placed.cut)];
  return *ShardingOf(placement, shape,
                     {.units = units, .cut = placed.cut, .shares = SharesOf(cut, units)});
}

std::vector<Range> RangesAlong(const Sharding& sharding, int dim, const Shape& shape, int members) {
  const Range whole{0, ExtentOf(shape, dim)};
  if (sharding.kind == Kind::kReplicate) {
    return std::vector(static_cast<size_t>(members), whole);
  }
  std::vector<Range> ranges = sharding.held;
  if (sharding.dim != dim) {
    for (Range& range : ranges) {
      range = range.empty() ? Range{} : whole;
    }
  }
  return ranges;
}

std::optional<Box> BoxOf(const Sharding& sharding, const Shape& shape, int position) {
  Box box = WholeBox(shape);
  if (sharding.kind == Kind::kReplicate) {
    return box;
  }
  const Range range = sharding.held[static_cast<size_t>(position)];
  if (range.empty()) {
    return std::nullopt;
  }
  if (sharding.dim >= 0) {
    box.offset[static_cast<size_t>(sharding.dim)] = range.begin;
    box.extent[static_cast<size_t>(sharding.dim)] = range.end - range.begin;
  }
  return box;
}

}  // namespace heddle::graph
