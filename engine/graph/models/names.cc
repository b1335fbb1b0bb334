#include "engine/graph/models/names.h"

#include <fmt/format.h>

namespace heddle::graph {
namespace {

NameMapping Same(std::string name, const Shape& shape, std::string foreign_name) {
  return {.name = std::move(name),
          .shape = shape,
          .foreign_name = std::move(foreign_name),
          .foreign_shape = shape,
          .box = WholeBox(shape),
          .transpose = false};
}

/// Part `part` of `parts` equal ones along their last dimension, which holds output features.
NameMapping Conv1dWeight(std::string name,
                         int64_t out,
                         int64_t in,
                         std::string foreign_name,
                         int64_t part = 0,
                         int64_t parts = 1) {
  return {.name = std::move(name),
          .shape = {out, in},
          .foreign_name = std::move(foreign_name),
          .foreign_shape = {in, out * parts},
          .box = {.offset = {0, out * part}, .extent = {in, out}},
          .transpose = true};
}

NameMapping Conv1dBias(
    std::string name, int64_t out, std::string foreign_name, int64_t part = 0, int64_t parts = 1) {
  return {.name = std::move(name),
          .shape = {out},
          .foreign_name = std::move(foreign_name),
          .foreign_shape = {out * parts},
          .box = {.offset = {out * part}, .extent = {out}},
          .transpose = false};
}

std::vector<NameMapping> LlamaNames(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const int64_t kv = hidden / config.num_attention_heads * config.num_key_value_heads;
  std::vector<NameMapping> names = {
      Same("embedding.weight", {config.vocab_size, hidden}, "model.embed_tokens.weight")};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    auto add_part = [&](std::string_view ours, const Shape& shape, std::string_view theirs,
                        std::string_view part) {
      names.push_back(Same(fmt::format("layers.{}.{}.{}", layer, ours, part), shape,
                           fmt::format("model.layers.{}.{}.{}", layer, theirs, part)));
    };
    auto add = [&](std::string_view ours, const Shape& shape, std::string_view theirs) {
      add_part(ours, shape, theirs, "weight");
    };
    auto add_bias = [&](std::string_view ours, const Shape& shape, std::string_view theirs) {
      add_part(ours, shape, theirs, "bias");
    };
    add("attention.norm", {hidden}, "input_layernorm");
    add("attention.query", {hidden, hidden}, "self_attn.q_proj");
    add("attention.key", {kv, hidden}, "self_attn.k_proj");
    add("attention.value", {kv, hidden}, "self_attn.v_proj");
    if (config.qkv_bias) {
      add_bias("attention.query", {hidden}, "self_attn.q_proj");
      add_bias("attention.key", {kv}, "self_attn.k_proj");
      add_bias("attention.value", {kv}, "self_attn.v_proj");
    }
    add("attention.output", {hidden, hidden}, "self_attn.o_proj");
    add("mlp.norm", {hidden}, "post_attention_layernorm");
    add("mlp.gate", {inner, hidden}, "mlp.gate_proj");
    add("mlp.up", {inner, hidden}, "mlp.up_proj");
    add("mlp.down", {hidden, inner}, "mlp.down_proj");
  }
  names.push_back(Same("head.norm.weight", {hidden}, "model.norm.weight"));
  return names;
}

void AddGpt2Layer(const ModelConfig& config, int64_t layer, std::vector<NameMapping>& names) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  auto ours = [&](std::string_view name) { return fmt::format("layers.{}.{}", layer, name); };
  auto theirs = [&](std::string_view name) {
    return fmt::format("transformer.h.{}.{}", layer, name);
  };
  auto norm = [&](std::string_view name, std::string_view foreign) {
    for (const char* const part : {".weight", ".bias"}) {
      names.push_back(Same(ours(name) + part, {hidden}, theirs(foreign) + part));
    }
  };
  auto linear = [&](std::string_view name, int64_t out, int64_t in, std::string_view foreign,
                    int64_t part = 0, int64_t parts = 1) {
    names.push_back(
        Conv1dWeight(ours(name) + ".weight", out, in, theirs(foreign) + ".weight", part, parts));
    names.push_back(Conv1dBias(ours(name) + ".bias", out, theirs(foreign) + ".bias", part, parts));
  };
  norm("attention.norm", "ln_1");
  linear("attention.query", hidden, hidden, "attn.c_attn", 0, 3);
  linear("attention.key", hidden, hidden, "attn.c_attn", 1, 3);
  linear("attention.value", hidden, hidden, "attn.c_attn", 2, 3);
  linear("attention.output", hidden, hidden, "attn.c_proj");
  norm("mlp.norm", "ln_2");
  linear("mlp.up", inner, hidden, "mlp.c_fc");
  linear("mlp.down", hidden, inner, "mlp.c_proj");
}

std::vector<NameMapping> Gpt2Names(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  std::vector<NameMapping> names = {
      Same("embedding.weight", {config.vocab_size, hidden}, "transformer.wte.weight"),
      Same("embedding.position.weight", {config.max_position_embeddings, hidden},
           "transformer.wpe.weight")};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    AddGpt2Layer(config, layer, names);
  }
  names.push_back(Same("head.norm.weight", {hidden}, "transformer.ln_f.weight"));
  names.push_back(Same("head.norm.bias", {hidden}, "transformer.ln_f.bias"));
  return names;
}

}  // namespace

std::vector<NameMapping> HuggingFaceNames(const ModelConfig& config) {
  std::vector<NameMapping> names =
      config.family == ModelFamily::kLlama ? LlamaNames(config) : Gpt2Names(config);
  if (!config.tie_word_embeddings) {
    names.push_back(Same("head.weight", {config.vocab_size, config.hidden_size}, "lm_head.weight"));
  }
  return names;
}

}  // namespace heddle::graph
