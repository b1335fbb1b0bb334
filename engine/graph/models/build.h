/// \file
/// The common parts of the families' forward graphs: naming of parameters and nodes, and the head.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/graph/builder.h"
#include "engine/graph/models/model.h"

namespace heddle::graph {

/// A GraphBuilder with the layers of models: a layer named "layers.0.mlp.up" reads
/// "layers.0.mlp.up.weight" (and ".bias"). The first error is kept and every later call returns at
/// once, so that a model's code is a plain list of layers; Finish returns the error.
class ModelBuilder {
 public:
  ModelBuilder(const ModelConfig& config, const TrainingGraphOptions& options);

  const ModelConfig& config() const { return config_; }
  TensorId tokens() const { return builder_.tokens(); }

  void BeginSegment(std::string name, int layer) { builder_.BeginSegment(std::move(name), layer); }

  /// Adds a normally distributed matrix. `standard_deviation` 0: the configuration's
  /// initializer_range.
  TensorId Matrix(std::string name, Shape shape, double standard_deviation = 0);

  /// Adds a node of the operator `op` and returns its first output, named `name`.
  TensorId Apply(std::string_view op,
                 std::string name,
                 std::vector<TensorId> inputs,
                 Attributes attributes = {});

  TensorId Linear(const std::string& name,
                  TensorId x,
                  int64_t out_features,
                  bool has_bias,
                  double standard_deviation = 0);
  TensorId RmsNorm(const std::string& name, TensorId x);
  TensorId LayerNorm(const std::string& name, TensorId x);
  /// Adds dropout; returns `x` if the configuration has none. Sites are numbered in the order of
  /// the calls.
  TensorId Dropout(const std::string& name, TensorId x);

  /// Adds the logits by `weight` [V, D] and the loss, and returns the graph, or the first error.
  Result<Graph> Finish(TensorId x, TensorId weight);

 private:
  int64_t Features(TensorId x) const { return builder_.type(x).shape.back(); }

  const ModelConfig& config_;
  const TrainingGraphOptions& options_;
  GraphBuilder builder_;
  Status status_;
  int64_t dropout_sites_ = 0;
};

Result<Graph> BuildLlama(const ModelConfig& config, const TrainingGraphOptions& options);
Result<Graph> BuildGpt2(const ModelConfig& config, const TrainingGraphOptions& options);

}  // namespace heddle::graph
