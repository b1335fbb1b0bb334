/// \file
/// The median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace heddle::elastic {

/// The median of at least one value; the higher one of the two in the middle of an even number.
inline double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace heddle::elastic
