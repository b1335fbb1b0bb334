/// \file
/// A second, slow implementation of every operator: plain loops in double, written from
/// docs/reference/operators.md and not from the kernels. Sharding rules and gradients are checked
/// against it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "engine/graph/graph.h"

namespace heddle::testing {

/// A tensor of doubles, row-major. Tokens and targets are whole numbers.
struct DenseTensor {
  Shape shape;
  std::vector<double> values;

  DenseTensor() = default;
  explicit DenseTensor(Shape extents)
      : shape(std::move(extents)),
        values(static_cast<size_t>(ElementCount(shape)), 0.0) {}

  double& operator[](int64_t element) { return values[static_cast<size_t>(element)]; }
  double operator[](int64_t element) const { return values[static_cast<size_t>(element)]; }
  /// The extent of the last dimension; rows() is the product of the others.
  int64_t columns() const { return shape.back(); }
  int64_t rows() const {
    return shape.back() == 0 ? 0 : static_cast<int64_t>(values.size()) / shape.back();
  }
};

/// The position in training that decides a node's dropout.
struct DenseContext {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;
};

/// The outputs of one operator. Aborts for an unknown operator.
std::vector<DenseTensor> Evaluate(std::string_view op,
                                  const graph::Attributes& attributes,
                                  std::span<const DenseTensor> inputs,
                                  const DenseContext& context = {});

/// Runs all nodes of a graph; `inputs` holds tokens, targets and parameters. Returns all tensors,
/// by id.
std::vector<DenseTensor> EvaluateGraph(const graph::Graph& graph,
                                       const std::map<graph::TensorId, DenseTensor>& inputs,
                                       const DenseContext& context = {});

/// A random tensor: uniform in [-1, 1); for int32, whole numbers in [0, bound).
DenseTensor RandomTensor(const graph::TensorType& type, int64_t bound, Random& random);

/// Random tokens, targets and parameters of a graph.
std::map<graph::TensorId, DenseTensor> RandomInputs(const graph::Graph& graph, Random& random);

}  // namespace heddle::testing
