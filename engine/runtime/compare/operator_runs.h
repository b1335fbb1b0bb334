/// \file
/// Runs every operator of a graph alone and compares what it computes with the same in fp64, so
/// that kernels, libraries and devices can be compared operator by operator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "engine/graph/graph.h"

namespace heddle::runtime {

class Device;

/// An output of an operator beside the same output in fp64. Errors of elements are relative:
/// |value − exact| / (|exact| + the root mean square of exact).
struct OperatorRun {
  std::string signature = {};       ///< graph::NodeSignature of the node.
  std::string op = {};              ///< Name of the operator.
  int output = 0;                   ///< Number of the output.
  DType dtype = DType::kF32;        ///< The coarsest type among the node's operands and outputs.
  DType type = DType::kF32;         ///< The output's own type.
  int64_t elements = 0;             ///< Number of elements of the output.
  double terms = 0;                 ///< Terms that are added for one element.
  double mean_error = 0;            ///< Root mean square of the elements' errors.
  double largest_error = 0;         ///< Largest error of an element.
  double slope = 0;                 ///< <value − exact, exact> / <exact, exact>; 0: no bias.
  int64_t not_finite = 0;           ///< Elements that are not finite where fp64's are.
  std::string bits = {};            ///< Hash of the output's bytes.
  std::vector<double> values = {};  ///< Elements of the output at places drawn by their number.
  std::vector<double> exact = {};   ///< fp64's elements at these places.
};

/// Runs each distinct node of `graph` (by NodeSignature) once on `device`, with random operands.
/// `exact` is the graph of the same job in fp64, whose nodes run on the host in libtorch's plain
/// operations, on the very values of the operands; null: nothing is compared, and errors, slope and
/// samples of the outputs stay as they are in an OperatorRun without a run. Operands depend on the
/// signature alone, so they are alike on every machine: normal numbers, and token ids below
/// `vocabulary`. Needs the memory of one node's operands in both types. Errors: kInternal when a
/// kernel fails, the device's. Thread: the one that computes on the device; no other kernel may run
/// meanwhile.
Result<std::vector<OperatorRun>> RunOperators(const graph::Graph& graph,
                                              const graph::Graph* exact,
                                              int64_t vocabulary,
                                              Device& device);

}  // namespace heddle::runtime
