/// \file
/// The evaluator's operators, in two groups.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tests/support/graph/dense_evaluator.h"

namespace heddle::testing {

using DenseInputs = std::span<const DenseTensor>;
using DenseOperator = std::function<std::vector<DenseTensor>(
    const graph::Attributes&, DenseInputs, const DenseContext&)>;

std::map<std::string, DenseOperator, std::less<>> DenseForwardOperators();
std::map<std::string, DenseOperator, std::less<>> DenseBackwardOperators();

}  // namespace heddle::testing
