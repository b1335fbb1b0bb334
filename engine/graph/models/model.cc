#include "engine/graph/models/model.h"

#include <cmath>
#include <initializer_list>

#include "engine/graph/builder.h"
#include "engine/graph/models/build.h"

namespace heddle::graph {
namespace {

/// Far above any model, low enough that no product of three extents overflows 64 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 20;

struct Bounded {
  std::string_view key;
  int64_t value;
  int64_t most;
};

Status CheckBounds(std::initializer_list<Bounded> values) {
  for (const Bounded& bounded : values) {
    if (bounded.value < 1 || bounded.value > bounded.most) {
      return InvalidArgumentError("{}: expected 1 to {}, got {}", bounded.key, bounded.most,
                                  bounded.value);
    }
  }
  return Status::Ok();
}

Status CheckHeads(const ModelConfig& config) {
  if (config.hidden_size % config.num_attention_heads != 0) {
    return InvalidArgumentError("hidden_size: {} is no multiple of num_attention_heads {}",
                                config.hidden_size, config.num_attention_heads);
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return InvalidArgumentError("num_attention_heads: {} is no multiple of num_key_value_heads {}",
                                config.num_attention_heads, config.num_key_value_heads);
  }
  if (config.family == ModelFamily::kGpt2 &&
      config.num_key_value_heads != config.num_attention_heads) {
    return InvalidArgumentError(
        "num_key_value_heads: gpt2 has as many as num_attention_heads {}, got {}",
        config.num_attention_heads, config.num_key_value_heads);
  }
  const int64_t head_dim = config.hidden_size / config.num_attention_heads;
  if (config.family == ModelFamily::kLlama && head_dim % 2 != 0) {
    return InvalidArgumentError("hidden_size: heads of {} elements cannot be rotated in halves",
                                head_dim);
  }
  return Status::Ok();
}

Status ValidateOptions(const ModelConfig& config, const TrainingGraphOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckBounds({{"microbatch_size", options.microbatch_size, kMaxExtent},
                                      {"sequence_length", options.sequence_length, kMaxExtent}}));
  if (options.sequence_length > config.max_position_embeddings) {
    return InvalidArgumentError("sequence_length: {} exceeds max_position_embeddings {}",
                                options.sequence_length, config.max_position_embeddings);
  }
  if (options.compute != DType::kF32 && options.compute != DType::kBF16 &&
      options.compute != DType::kF64) {
    return InvalidArgumentError("compute type: expected fp32, bf16 or fp64, got {}",
                                DTypeName(options.compute));
  }
  if (!(options.loss_scale > 0) || !std::isfinite(options.loss_scale)) {
    return InvalidArgumentError("loss scale: expected a positive number, got {}",
                                options.loss_scale);
  }
  return Status::Ok();
}

}  // namespace

Status ValidateModel(const ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(
      CheckBounds({{"vocab_size", config.vocab_size, kMaxExtent * 16},
                   {"hidden_size", config.hidden_size, kMaxExtent},
                   {"intermediate_size", config.intermediate_size, kMaxExtent},
                   {"num_hidden_layers", config.num_hidden_layers, 10000},
                   {"num_attention_heads", config.num_attention_heads, kMaxExtent},
                   {"num_key_value_heads", config.num_key_value_heads, kMaxExtent},
                   {"max_position_embeddings", config.max_position_embeddings, kMaxExtent * 16}}));
  HEDDLE_RETURN_IF_ERROR(CheckHeads(config));
  if (!(config.norm_epsilon > 0) || !std::isfinite(config.norm_epsilon)) {
    return InvalidArgumentError("norm_epsilon: expected a positive number, got {}",
                                config.norm_epsilon);
  }
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    return InvalidArgumentError("rope_theta: expected a positive number, got {}",
                                config.rope_theta);
  }
  if (!(config.initializer_range > 0) || !std::isfinite(config.initializer_range)) {
    return InvalidArgumentError("initializer_range: expected a positive number, got {}",
                                config.initializer_range);
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    return InvalidArgumentError("dropout: expected 0 <= dropout < 1, got {}", config.dropout);
  }
  if (config.family == ModelFamily::kLlama && config.dropout != 0) {
    return InvalidArgumentError("dropout: llama has none, got {}", config.dropout);
  }
  return Status::Ok();
}

Result<Graph> BuildEvaluationGraph(const ModelConfig& config, const TrainingGraphOptions& options) {
  HEDDLE_RETURN_IF_ERROR(ValidateModel(config));
  HEDDLE_RETURN_IF_ERROR(ValidateOptions(config, options));
  ModelConfig model = config;
  model.dropout = 0;
  return config.family == ModelFamily::kLlama ? BuildLlama(model, options)
                                              : BuildGpt2(model, options);
}

Result<Graph> BuildTrainingGraph(const ModelConfig& config, const TrainingGraphOptions& options) {
  HEDDLE_RETURN_IF_ERROR(ValidateModel(config));
  HEDDLE_RETURN_IF_ERROR(ValidateOptions(config, options));
  HEDDLE_ASSIGN_OR_RETURN(Graph graph, config.family == ModelFamily::kLlama
                                           ? BuildLlama(config, options)
                                           : BuildGpt2(config, options));
  HEDDLE_RETURN_IF_ERROR(Differentiate(graph));
  return graph;
}

}  // namespace heddle::graph
