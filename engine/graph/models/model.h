/// \file
/// The models that Heddle trains, described by the fields of Hugging Face's config.json, and their
/// graphs.
#pragma once

#include <string>
#include <string_view>

#include "engine/graph/graph.h"

namespace heddle::graph {

enum class ModelFamily : uint8_t { kLlama, kGpt2 };

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocab_size = 256;
  int64_t hidden_size = 256;
  int64_t intermediate_size = 688;
  int64_t num_hidden_layers = 4;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;         ///< Llama; for GPT-2 equal to num_attention_heads.
  int64_t max_position_embeddings = 2048;  ///< GPT-2: learned positions; Llama: only a limit.
  double norm_epsilon = 1e-5;              ///< rms_norm_eps or layer_norm_epsilon.
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  ///< Llama family: biases of query, key and value, as in Qwen2.
  double initializer_range = 0.02;
  double dropout = 0.0;  ///< GPT-2: embeddings, attention output and MLP output (resid_pdrop).

  bool operator==(const ModelConfig&) const = default;
};

struct TrainingGraphOptions {
  int64_t microbatch_size = 1;    ///< B
  int64_t sequence_length = 128;  ///< T
  DType compute = DType::kF32;    ///< fp32, bf16 or, in tests, fp64.
  double loss_scale = 1.0;  ///< 1 / (tokens of the global batch); the only scaling of gradients.
  AdamW optimizer = {};
};

/// Checks divisibility, positivity and limits. Errors: kInvalidArgument naming the key.
Status ValidateModel(const ModelConfig& config);

/// Builds forward, backward and optimizer for one microbatch. Segments: embedding, then attention
/// and mlp of each layer, then head.
Result<Graph> BuildTrainingGraph(const ModelConfig& config, const TrainingGraphOptions& options);

/// Builds only the forward part with the loss, for validation.
Result<Graph> BuildEvaluationGraph(const ModelConfig& config, const TrainingGraphOptions& options);

/// Parses the text of Hugging Face's config.json (model_type llama, mistral, qwen2 or gpt2; gpt2's
/// n_embd, n_layer, …). Mistral's sliding window becomes the longest sequence, within which the
/// models are equal. Missing fields have the defaults of transformers' configuration classes; the
/// sizes of a model must be given.
/// Errors: kInvalidArgument naming the key, also for an unknown field.
Result<ModelConfig> ParseModelConfig(std::string_view json);

/// The text of a config.json that `from_pretrained` can open.
std::string ModelConfigJson(const ModelConfig& config);

}  // namespace heddle::graph
