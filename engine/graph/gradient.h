/// \file
/// What an operator's Gradient() works with.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/graph/operator.h"

namespace heddle::graph {

/// The view of one forward node during differentiation. Thread: one caller.
class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;

  virtual const Node& node() const = 0;
  TensorId input(int i) const { return node().inputs[static_cast<size_t>(i)]; }
  TensorId output(int i) const { return node().outputs[static_cast<size_t>(i)]; }
  virtual const TensorType& type(TensorId tensor) const = 0;

  /// Gradient of output i; nothing when it does not influence the loss. For the loss tensor itself
  /// there is no gradient tensor (it is 1): cross_entropy ignores it.
  virtual std::optional<TensorId> OutputGradient(int i) const = 0;
  /// Whether anybody wants input i's gradient (tokens' and targets' is never wanted).
  virtual bool Wanted(int i) const = 0;
  /// Adds a node with the forward node's segment, and the phase that fits what it computes (weight
  /// gradients are Phase::kWeight); returns its outputs.
  virtual Result<std::vector<TensorId>> Apply(std::string_view op,
                                              std::vector<TensorId> inputs,
                                              Attributes attributes,
                                              Phase phase) = 0;
  /// Contributes `gradient` to input i's gradient; contributions of several consumers are added by
  /// `add` nodes in descending order of the consumers, so in one fixed order.
  virtual Status Contribute(int i, TensorId gradient) = 0;
};

}  // namespace heddle::graph
