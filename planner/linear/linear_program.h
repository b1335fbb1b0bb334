/// \file
/// A small dense simplex solver for packing programs.
#pragma once

#include <vector>

namespace heddle::planner {

/// Returns the x that maximises value · x subject to matrix x <= limit and x >= 0. `matrix` is
/// indexed [row][column]. Preconditions: value, matrix and limit are >= 0, so that x = 0 is
/// feasible, and every column with a positive value has a positive entry. By Bland's rule it ends
/// without cycling, with the same result on every machine. Source: Chvatal, Linear Programming
/// (1983), chapters 2 and 3.
std::vector<double> SolvePacking(const std::vector<double>& value,
                                 const std::vector<std::vector<double>>& matrix,
                                 const std::vector<double>& limit);

}  // namespace heddle::planner
