#include "base/tensor/shape.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heddle {

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

std::string ToString(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Box WholeBox(const Shape& shape) {
  return {.offset = Shape(shape.size(), 0), .extent = shape};
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box common{.offset = a.offset, .extent = a.extent};
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.offset[d] = begin;
    common.extent[d] = end - begin;
  }
  return common;
}

bool Contains(const Box& outer, const Box& inner) {
  for (size_t d = 0; d < outer.offset.size(); ++d) {
    if (inner.offset[d] < outer.offset[d] ||
        inner.offset[d] + inner.extent[d] > outer.offset[d] + outer.extent[d]) {
      return false;
    }
  }
  return true;
}

std::string ToString(const Box& box) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < box.offset.size(); ++d) {
    ranges.push_back(fmt::format("{}:{}", box.offset[d], box.offset[d] + box.extent[d]));
  }
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

int64_t UnitEdge(int64_t items, int units, int unit) {
  // In two parts, so that the product does not overflow for any number of items.
  return items / units * unit + items % units * unit / units;
}

}  // namespace heddle
