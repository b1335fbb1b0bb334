#include "planner/linear/linear_program.h"

#include <cstddef>

#include "base/check.h"

namespace heddle::planner {
namespace {

constexpr double kZero = 1e-11;

}  // namespace

std::vector<double> SolvePacking(const std::vector<double>& value,
                                 const std::vector<std::vector<double>>& matrix,
                                 const std::vector<double>& limit) {
  const size_t columns = value.size();
  const size_t rows = limit.size();
  // Tableau: structural columns, one slack a row, right-hand side; last row: reduced values.
  const size_t width = columns + rows + 1;
  std::vector<std::vector<double>> tableau(rows + 1, std::vector<double>(width, 0));
  std::vector<size_t> basis(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      tableau[r][c] = matrix[r][c];
    }
    tableau[r][columns + r] = 1;
    tableau[r][width - 1] = limit[r];
    basis[r] = columns + r;
  }
  for (size_t c = 0; c < columns; ++c) {
    tableau[rows][c] = value[c];
  }
  for (;;) {
    size_t enter = 0;
    while (enter + 1 < width && tableau[rows][enter] <= kZero) {
      ++enter;
    }
    if (enter + 1 == width) {
      break;
    }
    size_t leave = rows;
    for (size_t r = 0; r < rows; ++r) {
      if (tableau[r][enter] <= kZero) {
        continue;
      }
      const double ratio = tableau[r][width - 1] / tableau[r][enter];
      const double best = leave == rows ? 0 : tableau[leave][width - 1] / tableau[leave][enter];
      if (leave == rows || ratio < best || (ratio == best && basis[r] < basis[leave])) {
        leave = r;
      }
    }
    HEDDLE_CHECK(leave < rows, "column {} is unbounded", enter);
    const double pivot = tableau[leave][enter];
    for (double& entry : tableau[leave]) {
      entry /= pivot;
    }
    for (size_t r = 0; r <= rows; ++r) {
      const double factor = tableau[r][enter];
      if (r != leave && factor != 0) {
        for (size_t c = 0; c < width; ++c) {
          tableau[r][c] -= factor * tableau[leave][c];
        }
        tableau[r][enter] = 0;
      }
    }
    basis[leave] = enter;
  }
  std::vector<double> solution(columns, 0);
  for (size_t r = 0; r < rows; ++r) {
    if (basis[r] < columns) {
      solution[basis[r]] = tableau[r][width - 1];
    }
  }
  return solution;
}

}  // namespace heddle::planner
