/// \file
/// A Llama and a GPT-2 of one layer in memory, each element with a different number, with the
/// tensors' names of transformers or of Heddle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/checkpoint/convert/memory_model.h"

namespace heddle::checkpoint {

// Wider than a tile of the transposition, and no multiple of one.
inline constexpr int64_t kHidden = 40;
inline constexpr int64_t kInner = 48;
inline constexpr int64_t kVocabulary = 6;
inline constexpr int64_t kPositions = 3;

inline std::string Llama(bool tied) {
  return fmt::format(
      R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "tie_word_embeddings": {}}})",
      kVocabulary, kHidden, kInner, tied);
}

inline std::string Gpt2() {
  return fmt::format(
      R"({{"model_type": "gpt2", "vocab_size": {}, "n_embd": {}, "n_inner": {}, "n_layer": 1,
          "n_head": 2, "n_positions": {}, "layer_norm_epsilon": 1e-5}})",
      kVocabulary, kHidden, kInner, kPositions);
}

struct Named {
  std::string theirs;
  std::string ours;
  Shape shape;
};

/// The names and shapes of the Llama's tensors, written by hand from transformers'
/// LlamaForCausalLM.
inline std::vector<Named> LlamaTensors() {
  const std::string layer = "model.layers.0.";
  return {
      {"model.embed_tokens.weight", "embedding.weight", {kVocabulary, kHidden}},
      {layer + "input_layernorm.weight", "layers.0.attention.norm.weight", {kHidden}},
      {layer + "self_attn.q_proj.weight", "layers.0.attention.query.weight", {kHidden, kHidden}},
      {layer + "self_attn.k_proj.weight", "layers.0.attention.key.weight", {kHidden / 2, kHidden}},
      {layer + "self_attn.v_proj.weight",
       "layers.0.attention.value.weight",
       {kHidden / 2, kHidden}},
      {layer + "self_attn.o_proj.weight", "layers.0.attention.output.weight", {kHidden, kHidden}},
      {layer + "post_attention_layernorm.weight", "layers.0.mlp.norm.weight", {kHidden}},
      {layer + "mlp.gate_proj.weight", "layers.0.mlp.gate.weight", {kInner, kHidden}},
      {layer + "mlp.up_proj.weight", "layers.0.mlp.up.weight", {kInner, kHidden}},
      {layer + "mlp.down_proj.weight", "layers.0.mlp.down.weight", {kHidden, kInner}},
      {"model.norm.weight", "head.norm.weight", {kHidden}},
  };
}

/// The first element of the i-th tensor; different for each tensor.
inline float First(size_t i) {
  return 10'000.F * static_cast<float>(i + 1);
}

inline std::unique_ptr<MemoryModel> LlamaModel(bool tied, bool ours = false) {
  auto model = std::make_unique<MemoryModel>(Llama(tied));
  const std::vector<Named> tensors = LlamaTensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    model->Add(ours ? tensors[i].ours : tensors[i].theirs, tensors[i].shape, First(i),
               ours ? "master" : "");
  }
  if (!tied) {
    model->Add(ours ? "head.weight" : "lm_head.weight", {kVocabulary, kHidden},
               First(tensors.size()));
  }
  return model;
}

inline std::unique_ptr<MemoryModel> Gpt2Model() {
  auto model = std::make_unique<MemoryModel>(Gpt2());
  float first = 0;
  const auto add = [&](const std::string& name, const Shape& shape) {
    model->Add(name, shape, first += 10'000.F);
  };
  const std::string layer = "transformer.h.0.";
  add("transformer.wte.weight", {kVocabulary, kHidden});
  add("transformer.wpe.weight", {kPositions, kHidden});
  for (const char* const norm : {"ln_1", "ln_2"}) {
    add(layer + norm + ".weight", {kHidden});
    add(layer + norm + ".bias", {kHidden});
  }
  add(layer + "attn.c_attn.weight", {kHidden, 3 * kHidden});
  add(layer + "attn.c_attn.bias", {3 * kHidden});
  add(layer + "attn.c_proj.weight", {kHidden, kHidden});
  add(layer + "attn.c_proj.bias", {kHidden});
  add(layer + "mlp.c_fc.weight", {kHidden, kInner});
  add(layer + "mlp.c_fc.bias", {kInner});
  add(layer + "mlp.c_proj.weight", {kInner, kHidden});
  add(layer + "mlp.c_proj.bias", {kHidden});
  add("transformer.ln_f.weight", {kHidden});
  add("transformer.ln_f.bias", {kHidden});
  return model;
}

}  // namespace heddle::checkpoint
