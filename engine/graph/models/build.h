/// \file
/// What the families' forward graphs share: naming of parameters and nodes, and the head.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/graph/builder.h"
#include "engine/graph/models/model.h"

namespace heddle::graph {

/// GraphBuilder in the words of models: a layer named "layers.0.mlp.up" reads
/// "layers.0.mlp.up.weight" (and ".bias"). The first error stays and every later call returns at
/// once, so that a model reads as a list.
class ModelBuilder {
 public:
  ModelBuilder(const ModelConfig& config, const TrainingGraphOptions& options);

  const ModelConfig& config() const { return config_; }
  TensorId tokens() const { return builder_.tokens(); }

  void BeginSegment(std::string name, int layer) { builder_.BeginSegment(std::move(name), layer); }

  /// Normally distributed matrix; 0 for `standard_deviation`: the configuration's
  /// initializer_range.
  TensorId Matrix(std::string name, Shape shape, double standard_deviation = 0);

  /// First output of an operator named `name`.
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
  /// Nothing when the configuration has no dropout. Sites are numbered in order of the calls.
  TensorId Dropout(const std::string& name, TensorId x);

  /// Logits by `weight` [V, D] and the loss: ends the graph.
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
