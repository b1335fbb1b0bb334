/// \file
/// Builds forward graphs; used by the models and by tests' random graphs.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/graph/operator.h"

namespace heddle::graph {

/// A builder of forward graphs. Thread: one caller at a time.
class GraphBuilder {
 public:
  /// `compute`: element type of activations and of parameters of rank >= 2; parameters of lower
  /// rank stay in the master's element type.
  GraphBuilder(DType compute, int64_t batch, int64_t sequence);

  TensorId tokens() const { return graph_.tokens; }
  TensorId targets() const { return graph_.targets; }

  /// Begins a new segment, to which all nodes added from now on belong.
  void BeginSegment(std::string name, int layer);

  /// Adds a parameter, which any number of nodes may read; the name must be new.
  TensorId AddParameter(std::string name, Shape shape, Initializer initializer, bool decay);

  /// Adds a forward node and returns its outputs. The first output has the name `name`, the others
  /// `name`.1, `name`.2, … Errors: kInvalidArgument (no such operator, or it refuses the shapes).
  Result<std::vector<TensorId>> Apply(std::string_view op,
                                      std::string name,
                                      std::vector<TensorId> inputs,
                                      Attributes attributes = {});
  /// Adds a forward node and returns its first output; see Apply.
  Result<TensorId> Apply1(std::string_view op,
                          std::string name,
                          std::vector<TensorId> inputs,
                          Attributes attributes = {});

  const TensorType& type(TensorId id) const { return graph_.tensor(id).type; }

  /// Ends the forward graph with `loss` (fp64 scalar).
  Graph Finish(TensorId loss);

 private:
  TensorId AddTensor(Tensor tensor);

  Graph graph_;
  std::unordered_set<std::string> names_;
};

/// Adds backward and weight nodes for the loss (reverse mode over the node list). Every parameter
/// gets one gradient per use (Parameter::gradients), in forward order of the uses; they are not
/// summed here. Gradients of an activation with several consumers are summed by `add` nodes, last
/// consumer first. A sum belongs to the segment of the consumer that completes it, so that one
/// gradient crosses a cut point where one activation does. Nodes of the last segment come first,
/// and each segment's nodes are contiguous. Errors: kInvalidArgument (a node has no gradient, or a
/// parameter does not influence the loss); `graph` is then unspecified.
Status Differentiate(Graph& graph);

}  // namespace heddle::graph
