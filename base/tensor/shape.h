/// \file
/// Shapes of logical tensors, and boxes: rectangular parts of them (offset + extent). Resharding,
/// checkpoints and recovery all work on boxes. Shares of a dimension are runs of its units.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle {

/// The extents of a tensor by dimension, outermost first, row-major. Empty: a scalar (one element).
using Shape = std::vector<int64_t>;

/// Product of the extents; 1 for a scalar.
int64_t ElementCount(const Shape& shape);

/// The shape as text: "[2, 3]".
std::string ToString(const Shape& shape);

/// The part [offset, offset + extent) of a tensor; both have the tensor's rank.
struct Box {
  Shape offset;
  Shape extent;

  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// The box that covers a whole tensor.
Box WholeBox(const Shape& shape);

/// The intersection of two boxes of one rank; nullopt: they share no element.
std::optional<Box> Intersect(const Box& a, const Box& b);

/// Whether `outer` contains every element of `inner`.
bool Contains(const Box& outer, const Box& inner);

/// The box as text: "[0:2, 3:6]".
std::string ToString(const Box& box);

/// First item of unit `unit` when `items` (heads, rows, positions) are cut into `units`: the whole
/// part of unit * items / units, for 0 <= unit <= units. Units are as equal as they can be, and
/// some are empty when there are fewer items than units.
int64_t UnitEdge(int64_t items, int units, int unit);

}  // namespace heddle
