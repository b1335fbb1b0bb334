/// \file
/// The interface that an operator's Gradient() uses.
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

  /// The gradient of output i; nullopt: it does not influence the loss. The loss tensor itself has
  /// no gradient tensor (its gradient is 1); cross_entropy ignores it.
  virtual std::optional<TensorId> OutputGradient(int i) const = 0;
  /// Whether the gradient of input i is needed; that of tokens and targets never is.
  virtual bool Wanted(int i) const = 0;
  /// Adds a node in the forward node's segment and returns its outputs. `phase` is that of what the
  /// node computes (Phase::kWeight for weight gradients).
  virtual Result<std::vector<TensorId>> Apply(std::string_view op,
                                              std::vector<TensorId> inputs,
                                              Attributes attributes,
                                              Phase phase) = 0;
  /// Contributes `gradient` to input i's gradient. Contributions of several consumers are added by
  /// `add` nodes in descending order of the consumers, which is a fixed order.
  virtual Status Contribute(int i, TensorId gradient) = 0;
};

}  // namespace heddle::graph
