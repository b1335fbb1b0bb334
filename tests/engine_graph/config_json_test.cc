// Hugging Face's config.json: read, refused by name, written and read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/models/model.h"

namespace heddle::graph {
namespace {

using ::testing::HasSubstr;

// As published with the models.
constexpr std::string_view kTinyLlama = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
  "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22,
  "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.35.0", "use_cache": true, "vocab_size": 32000})";
constexpr std::string_view kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})";

TEST(ConfigJsonTest, ReadsLlama) {
  const auto config = ParseModelConfig(kTinyLlama);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, ModelFamily::kLlama);
  EXPECT_EQ(config->vocab_size, 32000);
  EXPECT_EQ(config->hidden_size, 2048);
  EXPECT_EQ(config->intermediate_size, 5632);
  EXPECT_EQ(config->num_hidden_layers, 22);
  EXPECT_EQ(config->num_attention_heads, 32);
  EXPECT_EQ(config->num_key_value_heads, 4);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->norm_epsilon, 1e-5);
  EXPECT_EQ(config->rope_theta, 1e4);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->dropout, 0);
}

TEST(ConfigJsonTest, ReadsGpt2WithItsDefaults) {
  const auto config = ParseModelConfig(kGpt2);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, ModelFamily::kGpt2);
  EXPECT_EQ(config->vocab_size, 50257);
  EXPECT_EQ(config->hidden_size, 768);
  EXPECT_EQ(config->intermediate_size, 3072);
  EXPECT_EQ(config->num_hidden_layers, 12);
  EXPECT_EQ(config->num_attention_heads, 12);
  EXPECT_EQ(config->num_key_value_heads, 12);
  EXPECT_EQ(config->max_position_embeddings, 1024);
  EXPECT_EQ(config->dropout, 0.1);
  EXPECT_TRUE(config->tie_word_embeddings);
}

std::string Minimal(std::string_view more) {
  return fmt::format(
      R"({{"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 1, "num_attention_heads": 4 {}}})",
      more);
}

TEST(ConfigJsonTest, LlamasDefaultsAreThoseOfTransformers) {
  const auto config = ParseModelConfig(Minimal(""));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->num_key_value_heads, 4);
  EXPECT_EQ(config->norm_epsilon, 1e-6);
  EXPECT_EQ(config->max_position_embeddings, 2048);
}

TEST(ConfigJsonTest, RotarySettingsMayBeAnObject) {
  const auto config = ParseModelConfig(
      Minimal(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 500000})"));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->rope_theta, 500000);
}

TEST(ConfigJsonTest, ErrorsNameTheKey) {
  struct Case {
    std::string json;
    std::string message;
  };
  const std::string deep(100000, '[');
  const std::vector<Case> cases = {
      {"", "config.json: not valid JSON"},
      {deep, "config.json: not valid JSON"},
      {"[1]", "config.json: expected an object"},
      {"{}", "model_type: missing"},
      {R"({"model_type": "mamba"})",
       R"(model_type: expected "llama", "mistral", "qwen2" or "gpt2", got "mamba")"},
      {R"({"model_type": ["llama"]})",
       R"(model_type: expected "llama", "mistral", "qwen2" or "gpt2", got an array)"},
      {R"({"model_type": "llama"})", "vocab_size: missing"},
      {R"({"model_type": "gpt2", "vocab_size": 10})", "n_embd: missing"},
      {Minimal(R"(, "rms_norm_eps": "small")"), R"(rms_norm_eps: expected a number, got "small")"},
      {Minimal(R"(, "max_position_embeddings": 12.5)"),
       "max_position_embeddings: expected an integer, got 12.5"},
      {Minimal(R"(, "max_position_embeddings": 18446744073709551615)"),
       "max_position_embeddings: expected an integer"},
      {Minimal(R"(, "tie_word_embeddings": 1)"),
       "tie_word_embeddings: expected true or false, got 1"},
      {Minimal(R"(, "hidden_act": "relu")"), R"(hidden_act: "relu" is not supported, only "silu")"},
      {Minimal(R"(, "attention_bias": true)"), "attention_bias: true is not supported, only false"},
      {Minimal(R"(, "head_dim": 8)"), "head_dim: 8 is not hidden_size 16 / num_attention_heads 4"},
      {Minimal(R"(, "num_key_value_heads": 3)"),
       "num_attention_heads: 4 is no multiple of num_key_value_heads 3"},
      {Minimal(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8})"),
       R"(rope_scaling: rope_type: "llama3" is not supported, only "default")"},
      {R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2, "embd_pdrop": 0.0})",
       "embd_pdrop: 0 differs from resid_pdrop 0.1"},
      {R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2,
           "activation_function": "relu"})",
       "activation_function: \"relu\" is not supported"},
  };
  for (const Case& c : cases) {
    const auto config = ParseModelConfig(c.json);
    ASSERT_FALSE(config.ok()) << c.message;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(config.status().message(), HasSubstr(c.message));
  }
}

TEST(ConfigJsonTest, WhatIsWrittenIsReadAgain) {
  for (const std::string_view json : {kTinyLlama, kGpt2}) {
    auto config = ParseModelConfig(json);
    ASSERT_TRUE(config.ok());
    config->norm_epsilon = 3e-6;
    config->initializer_range = 0.017;
    const std::string text = ModelConfigJson(*config);
    const auto again = ParseModelConfig(text);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(ModelConfigJson(*again), text);
    EXPECT_EQ(again->family, config->family);
    EXPECT_EQ(again->intermediate_size, config->intermediate_size);
    EXPECT_EQ(again->num_key_value_heads, config->num_key_value_heads);
    EXPECT_EQ(again->max_position_embeddings, config->max_position_embeddings);
    EXPECT_EQ(again->norm_epsilon, 3e-6);
    EXPECT_EQ(again->initializer_range, 0.017);
    EXPECT_EQ(again->tie_word_embeddings, config->tie_word_embeddings);
    EXPECT_EQ(again->dropout, config->dropout);
  }
  EXPECT_THAT(ModelConfigJson(*ParseModelConfig(kGpt2)),
              HasSubstr("\"architectures\": [\n    \"GPT2LMHeadModel\"\n  ]"));
}

}  // namespace
}  // namespace heddle::graph
