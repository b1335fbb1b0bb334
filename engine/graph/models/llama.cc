/// \file
/// Llama (Touvron et al. 2023) with grouped-query attention, as Hugging Face's LlamaForCausalLM
/// computes it: RMSNorm before each half of a layer, rotary positions, SwiGLU, no biases, head tied
/// or not. Mistral is the same within its window; Qwen2 has biases of query, key and value.
#include "engine/graph/models/build.h"

namespace heddle::graph {
namespace {

TensorId AttentionHalf(ModelBuilder& model, const std::string& name, TensorId x) {
  const ModelConfig& config = model.config();
  const int64_t head_dim = config.hidden_size / config.num_attention_heads;
  const int64_t kv_features = head_dim * config.num_key_value_heads;
  const Attributes rope = {
      {"head_dim", head_dim}, {"inverse", int64_t{0}}, {"theta", config.rope_theta}};

  const TensorId normed = model.RmsNorm(name + ".norm", x);
  const TensorId query = model.Linear(name + ".query", normed, config.hidden_size, config.qkv_bias);
  const TensorId key = model.Linear(name + ".key", normed, kv_features, config.qkv_bias);
  const TensorId value = model.Linear(name + ".value", normed, kv_features, config.qkv_bias);
  const TensorId mixed = model.Apply(
      "attention", name + ".mixed",
      {model.Apply("rope", name + ".query.rotated", {query}, rope),
       model.Apply("rope", name + ".key.rotated", {key}, rope), value},
      {{"heads", config.num_attention_heads}, {"kv_heads", config.num_key_value_heads}});
  const TensorId output = model.Linear(name + ".output", mixed, config.hidden_size, false);
  return model.Apply("add", name + ".residual", {x, output});
}

TensorId MlpHalf(ModelBuilder& model, const std::string& name, TensorId x) {
  const ModelConfig& config = model.config();
  const TensorId normed = model.RmsNorm(name + ".norm", x);
  const TensorId gate = model.Linear(name + ".gate", normed, config.intermediate_size, false);
  const TensorId up = model.Linear(name + ".up", normed, config.intermediate_size, false);
  const TensorId active = model.Apply("swiglu", name + ".active", {gate, up});
  const TensorId down = model.Linear(name + ".down", active, config.hidden_size, false);
  return model.Apply("add", name + ".residual", {x, down});
}

}  // namespace

Result<Graph> BuildLlama(const ModelConfig& config, const TrainingGraphOptions& options) {
  ModelBuilder model(config, options);
  model.BeginSegment("embedding", -1);
  const TensorId weight = model.Matrix("embedding.weight", {config.vocab_size, config.hidden_size});
  TensorId x = model.Apply("embedding", "embedding", {model.tokens(), weight});
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string name = fmt::format("layers.{}", layer);
    model.BeginSegment(name + ".attention", layer);
    x = AttentionHalf(model, name + ".attention", x);
    model.BeginSegment(name + ".mlp", layer);
    x = MlpHalf(model, name + ".mlp", x);
  }
  model.BeginSegment("head", -1);
  x = model.RmsNorm("head.norm", x);
  return model.Finish(x,
                      config.tie_word_embeddings
                          ? weight
                          : model.Matrix("head.weight", {config.vocab_size, config.hidden_size}));
}

}  // namespace heddle::graph
