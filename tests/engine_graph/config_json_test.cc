// Hugging Face's config.json: read, refused by name, written and read again; each field and each
// default against those of transformers (transformers_defaults.json: what the constructors of its
// configuration classes have; integration.convert compares the table with the library).
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/system/file.h"
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

using Json = nlohmann::json;

const std::vector<std::string> kFamilies = {"llama", "mistral", "qwen2", "gpt2"};

Json Table() {
  return Json::parse(*ReadFile(HEDDLE_TRANSFORMERS_DEFAULTS, 1 << 20));
}

/// Every field of the family's class and of its base, as the constructors set them.
Json Defaults(const std::string& family) {
  const Json table = Table();
  Json config = table["PretrainedConfig"];
  config.update(table[family]);
  config["model_type"] = family;
  return config;
}

/// Another value of the same kind.
Json Changed(const std::string& field, const Json& value) {
  if (field == "max_position_embeddings" || field == "sliding_window") {
    return 1024;  // Below the other one of the two.
  }
  if (value.is_boolean()) {
    return !value.get<bool>();
  }
  if (value.is_number_integer()) {
    return value == 0 ? 1 : 2 * value.get<int64_t>();
  }
  if (value.is_number()) {
    return value == 0.0 ? 0.5 : 2 * value.get<double>();
  }
  return value.is_string() ? Json("other") : value.is_null() ? Json(7) : Json{{"0", Json{1}}};
}

/// The model, or what is said of it.
std::string Outcome(const Json& config) {
  const auto read = ParseModelConfig(config.dump());
  return read.ok() ? ModelConfigJson(*read) : std::string(read.status().message());
}

/// What leaves the model as it is, whatever its value. In the base class all fields but a few do.
std::set<std::string> Irrelevant(const std::string& family) {
  std::set<std::string> fields = {"use_cache", "bos_token_id", "eos_token_id", "pad_token_id"};
  const Json base = Table()["PretrainedConfig"];
  for (const auto& [field, value] : base.items()) {
    if (field != "tie_word_embeddings" && field != "is_encoder_decoder" &&
        field != "add_cross_attention" && field != "pruned_heads") {
      fields.insert(field);
    }
  }
  if (family == "llama") {
    fields.insert("pretraining_tp");
  } else if (family == "qwen2") {  // Of the windows that use_sliding_window switches on.
    fields.insert({"sliding_window", "max_window_layers"});
  } else if (family == "gpt2") {
    fields.insert({"attn_pdrop", "reorder_and_upcast_attn", "summary_type", "summary_use_proj",
                   "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  }
  return fields;
}

TEST(ConfigJsonTest, EveryFieldOfEveryFamilyIsHonouredRefusedByNameOrKnownToBeIrrelevant) {
  for (const std::string& family : kFamilies) {
    const Json defaults = Defaults(family);
    const std::string model = Outcome(defaults);
    ASSERT_EQ(model.front(), '{') << model;
    const std::set<std::string> irrelevant = Irrelevant(family);
    for (const auto& [field, value] : defaults.items()) {
      Json changed = defaults;
      changed[field] = Changed(field, value);
      const std::string outcome = Outcome(changed);
      if (irrelevant.contains(field)) {
        EXPECT_EQ(outcome, model) << family << ": " << field;
      } else if (outcome.front() == '{') {
        EXPECT_NE(outcome, model) << family << ": " << field << " is passed over";
      } else {
        EXPECT_THAT(outcome, HasSubstr(field)) << family;
      }
    }
  }
}

// Beside the defaults, and beside any other field that is not as by default.
TEST(ConfigJsonTest, EveryDefaultIsThatOfTransformers) {
  for (const std::string& family : kFamilies) {
    const Json defaults = Defaults(family);
    const std::set<std::string> irrelevant = Irrelevant(family);
    for (const auto& [other, value] : defaults.items()) {
      if (irrelevant.contains(other)) {
        continue;
      }
      Json given = defaults;
      given[other] = Changed(other, value);
      const std::string model = Outcome(given);
      for (const auto& [field, unused] : defaults.items()) {
        Json left_out = given;
        left_out.erase(field);
        const std::string outcome = Outcome(left_out);
        if (field != other && outcome != field + ": missing") {
          EXPECT_EQ(outcome, model)
              << family << " without " << field << ", " << other << " changed";
        }
      }
    }
  }
}

TEST(ConfigJsonTest, AFieldThatIsNotKnownIsRefusedByName) {
  for (const std::string& family : kFamilies) {
    Json config = Defaults(family);
    config["quantization_config"] = {{"bits", 4}};
    EXPECT_EQ(Outcome(config), "quantization_config: is not known, and may change the model");
    config["quantization_config"] = nullptr;
    EXPECT_EQ(Outcome(config).front(), '{') << "null is none";
    config[std::string(1000, 'x')] = 1;
    EXPECT_EQ(Outcome(config), "a field with a long name: is not known, and may change the model");
  }
}

TEST(ConfigJsonTest, Gpt2sFieldsHaveTheNamesOfOtherFamiliesToo) {
  Json config = Defaults("gpt2");
  const std::string model = Outcome(config);
  for (const auto& [other, name] : {std::pair("hidden_size", "n_embd"),
                                    {"max_position_embeddings", "n_positions"},
                                    {"num_attention_heads", "n_head"},
                                    {"num_hidden_layers", "n_layer"}}) {
    config[other] = config[name];
    EXPECT_EQ(Outcome(config), model) << other;
    config.erase(name);
    EXPECT_EQ(Outcome(config), model) << other << " alone";
  }
  config["n_layer"] = 3;
  EXPECT_EQ(Outcome(config), "num_hidden_layers: 12 differs from n_layer 3");
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
      {Minimal(R"(, "max_position_embeddings": null)"),
       "max_position_embeddings: expected an integer, got null"},
      {Minimal(R"(, "rope_scaling": {"factor": 4.0})"), "rope_scaling: rope_type: missing"},
      {Minimal(R"(, "rope_scaling": {})"), "rope_scaling: rope_type: missing"},
      {Minimal(R"(, "rope_parameters": {"factor": 4.0})"),
       "rope_parameters: factor: is not known, and may change the model"},
      {Minimal(R"(, "rope_scaling": {"type": "linear", "factor": 4.0})"),
       R"(rope_scaling: type: "linear" is not supported, only "default")"},
      {Minimal(R"(, "rope_theta": 10000, "rope_parameters": {"rope_theta": 500000})"),
       "rope_parameters: rope_theta: 500000 differs from 10000 beside it"},
      {Minimal(R"(, "partial_rotary_factor": 0.5)"),
       "partial_rotary_factor: 0.5 is not supported, only 1.0"},
      {Minimal(R"(, "layer_types": ["full_attention", "sliding_attention"])"),
       "layer_types: only \"full_attention\" is supported"},
      {R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2, "resid_pdrop": 0.0})",
       "embd_pdrop: 0.1 differs from resid_pdrop 0"},
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
