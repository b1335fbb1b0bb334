/// \file
/// Builds forward graphs: used by the models and by tests' random graphs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/operator.h"

namespace heddle::graph {

/// Thread: one caller at a time.
class GraphBuilder {
 public:
  /// `compute`: element type of activations and of parameters of rank >= 2; parameters of lower rank stay
  /// in the master's element type.
  GraphBuilder(DType compute, int64_t batch, int64_t sequence);

  TensorId tokens() const { return graph_.tokens; }
  TensorId targets() const { return graph_.targets; }

  /// Everything applied from now on belongs to a new segment.
  void BeginSegment(std::string name, int layer);

  TensorId AddParameter(std::string name, Shape shape, Initializer initializer, bool decay);

  /// Adds a forward node; returns its outputs. `name` names its first output, and with suffixes the rest.
  /// Errors: kInvalidArgument when the operator refuses the shapes.
  Result<std::vector<TensorId>> Apply(std::string_view op, std::string name, std::vector<TensorId> inputs,
                                      Attributes attributes = {});
  /// The same for operators of one interesting output.
  Result<TensorId> Apply1(std::string_view op, std::string name, std::vector<TensorId> inputs,
                          Attributes attributes = {});

  /// Ends the forward graph with `loss` (fp64 scalar).
  Graph Finish(TensorId loss);

 private:
  Graph graph_;
};

/// Adds backward and weight nodes for the loss. Every parameter gets gradients by use (Parameter::gradients).
/// Errors: kInvalidArgument when a node has no gradient, or a parameter does not influence the loss.
Status Differentiate(Graph& graph);

}  // namespace heddle::graph
