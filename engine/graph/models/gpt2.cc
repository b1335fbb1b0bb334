/// \file
/// GPT-2 (Radford et al. 2019) as Hugging Face's GPT2LMHeadModel computes it: LayerNorm before each
/// half of a layer, learned positions, tanh GELU, biases. Query, key and value are three matrices
/// here and one there (names.h). Dropout acts on the embeddings and on each half's output, not on
/// attention probabilities.
#include <cmath>

#include "engine/graph/models/build.h"

namespace heddle::graph {
namespace {

/// Weights whose output is added to the residual stream start smaller, by the number of such
/// additions (section 2.3 of the paper).
double ResidualDeviation(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
}

TensorId AttentionHalf(ModelBuilder& model, const std::string& name, TensorId x) {
  const ModelConfig& config = model.config();
  const TensorId normed = model.LayerNorm(name + ".norm", x);
  const TensorId query = model.Linear(name + ".query", normed, config.hidden_size, true);
  const TensorId key = model.Linear(name + ".key", normed, config.hidden_size, true);
  const TensorId value = model.Linear(name + ".value", normed, config.hidden_size, true);
  const TensorId mixed = model.Apply(
      "attention", name + ".mixed", {query, key, value},
      {{"heads", config.num_attention_heads}, {"kv_heads", config.num_attention_heads}});
  const TensorId output =
      model.Linear(name + ".output", mixed, config.hidden_size, true, ResidualDeviation(config));
  return model.Apply("add", name + ".residual", {x, model.Dropout(name + ".dropout", output)});
}

TensorId MlpHalf(ModelBuilder& model, const std::string& name, TensorId x) {
  const ModelConfig& config = model.config();
  const TensorId normed = model.LayerNorm(name + ".norm", x);
  const TensorId up = model.Linear(name + ".up", normed, config.intermediate_size, true);
  const TensorId active = model.Apply("gelu", name + ".active", {up});
  const TensorId down =
      model.Linear(name + ".down", active, config.hidden_size, true, ResidualDeviation(config));
  return model.Apply("add", name + ".residual", {x, model.Dropout(name + ".dropout", down)});
}

}  // namespace

Result<Graph> BuildGpt2(const ModelConfig& config, const TrainingGraphOptions& options) {
  ModelBuilder model(config, options);
  model.BeginSegment("embedding", -1);
  const TensorId weight = model.Matrix("embedding.weight", {config.vocab_size, config.hidden_size});
  const TensorId positions = model.Matrix("embedding.position.weight",
                                          {config.max_position_embeddings, config.hidden_size});
  TensorId x = model.Apply("embedding", "embedding", {model.tokens(), weight});
  x = model.Apply("add_position", "embedding.position", {x, positions});
  x = model.Dropout("embedding.dropout", x);
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string name = fmt::format("layers.{}", layer);
    model.BeginSegment(name + ".attention", layer);
    x = AttentionHalf(model, name + ".attention", x);
    model.BeginSegment(name + ".mlp", layer);
    x = MlpHalf(model, name + ".mlp", x);
  }
  model.BeginSegment("head", -1);
  x = model.LayerNorm("head.norm", x);
  return model.Finish(x,
                      config.tie_word_embeddings
                          ? weight
                          : model.Matrix("head.weight", {config.vocab_size, config.hidden_size}));
}

}  // namespace heddle::graph
