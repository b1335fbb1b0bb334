/// \file
/// A small dense simplex for packing programs.
#pragma once

#include <vector>

namespace heddle::planner {

/// Maximises value · x subject to matrix x <= limit, x >= 0, with value, matrix and limit >= 0 (so
/// that x = 0 is feasible). Every column with a positive value must have a positive entry in some
/// row. matrix[row][column]. Bland's rule: ends without cycling, and the same everywhere. Source:
/// Chvatal, Linear Programming (1983), chapters 2 and 3.
std::vector<double> SolvePacking(const std::vector<double>& value,
                                 const std::vector<std::vector<double>>& matrix,
                                 const std::vector<double>& limit);

}  // namespace heddle::planner
