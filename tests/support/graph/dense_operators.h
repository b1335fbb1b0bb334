/// \file
/// The evaluator's operators, in two groups.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/graph/dense_evaluator.h"

namespace heddle::testing {

using DenseInputs = std::span<const DenseTensor>;
using DenseOperator = std::function<std::vector<DenseTensor>(
    const graph::Attributes&, DenseInputs, const DenseContext&)>;

/// Where a share begins in the whole; 0 for the whole.
inline int64_t First(const graph::Attributes& attributes, std::string_view name) {
  return attributes.FindInt(name).value_or(0);
}

/// The row of a share's table that a token chooses; -1 when it is another share's.
inline int64_t OwnRow(const graph::Attributes& attributes, double token, int64_t rows) {
  const int64_t row = static_cast<int64_t>(token) - First(attributes, "first_row");
  return row >= 0 && row < rows ? row : -1;
}

/// The key/value head of a share that its query head `head` reads.
inline int64_t KvHead(const graph::Attributes& attributes, int64_t head) {
  const int64_t group =
      attributes.FindInt("group").value_or(attributes.Int("heads") / attributes.Int("kv_heads"));
  const int64_t first = First(attributes, "first_head");
  return (first + head) / group - first / group;
}

std::map<std::string, DenseOperator, std::less<>> DenseForwardOperators();
std::map<std::string, DenseOperator, std::less<>> DenseBackwardOperators();

}  // namespace heddle::testing
