#include "engine/graph/models/build.h"

namespace heddle::graph {

ModelBuilder::ModelBuilder(const ModelConfig& config, const TrainingGraphOptions& options)
    : config_(config),
      options_(options),
      builder_(options.compute, options.microbatch_size, options.sequence_length) {}

TensorId ModelBuilder::Matrix(std::string name, Shape shape, double standard_deviation) {
  return builder_.AddParameter(
      std::move(name), std::move(shape),
      {.kind = Initializer::Kind::kNormal,
       .standard_deviation =
           standard_deviation > 0 ? standard_deviation : config_.initializer_range},
      /*decay=*/true);
}

TensorId ModelBuilder::Apply(std::string_view op,
                             std::string name,
                             std::vector<TensorId> inputs,
                             Attributes attributes) {
  if (!status_.ok()) {
    return builder_.tokens();
  }
  const auto output =
      builder_.Apply1(op, std::move(name), std::move(inputs), std::move(attributes));
  if (!output.ok()) {
    status_ = output.status();
    return builder_.tokens();
  }
  return *output;
}

TensorId ModelBuilder::Linear(const std::string& name,
                              TensorId x,
                              int64_t out_features,
                              bool has_bias,
                              double standard_deviation) {
  std::vector<TensorId> inputs = {
      x, Matrix(name + ".weight", {out_features, Features(x)}, standard_deviation)};
  if (has_bias) {
    inputs.push_back(builder_.AddParameter(name + ".bias", {out_features},
                                           {.kind = Initializer::Kind::kZeros}, /*decay=*/false));
  }
  return Apply("linear", name, std::move(inputs));
}

TensorId ModelBuilder::RmsNorm(const std::string& name, TensorId x) {
  const TensorId weight = builder_.AddParameter(
      name + ".weight", {Features(x)}, {.kind = Initializer::Kind::kOnes}, /*decay=*/false);
  return Apply("rms_norm", name, {x, weight}, {{"epsilon", config_.norm_epsilon}});
}

TensorId ModelBuilder::LayerNorm(const std::string& name, TensorId x) {
  const TensorId weight = builder_.AddParameter(
      name + ".weight", {Features(x)}, {.kind = Initializer::Kind::kOnes}, /*decay=*/false);
  const TensorId bias = builder_.AddParameter(name + ".bias", {Features(x)},
                                              {.kind = Initializer::Kind::kZeros}, /*decay=*/false);
  return Apply("layer_norm", name, {x, weight, bias}, {{"epsilon", config_.norm_epsilon}});
}

TensorId ModelBuilder::Dropout(const std::string& name, TensorId x) {
  if (config_.dropout == 0) {
    return x;
  }
  return Apply("dropout", name, {x}, {{"p", config_.dropout}, {"site", dropout_sites_++}});
}

Result<Graph> ModelBuilder::Finish(TensorId x, TensorId weight) {
  const TensorId logits = Apply("linear", "head.logits", {x, weight});
  const TensorId loss = Apply("cross_entropy", "loss", {logits, builder_.targets()},
                              {{"scale", options_.loss_scale}});
  HEDDLE_RETURN_IF_ERROR(status_);
  Graph graph = builder_.Finish(loss);
  graph.optimizer = options_.optimizer;
  return graph;
}

}  // namespace heddle::graph
