#include "engine/job/model_section.h"

#include <string>

#include "base/system/file.h"
#include "checkpoint/files/file_access.h"
namespace heddle::job {

graph::ModelConfig ReadModel(YamlReader model) {
  graph::ModelConfig config;
  if (model.Has("config")) {
    const std::string path = model.RequiredPath("config");
    if (path.empty()) {
      return config;
    }
    const Status real = checkpoint::CheckNoPlaceholder(path);
    const Result<std::string> text = real.ok() ? ReadFile(path, 1 << 20) : real;
    if (!text.ok()) {
      model.Fail("config", text.status().message());
      return config;
    }
    const Result<graph::ModelConfig> parsed = graph::ParseModelConfig(*text);
    if (!parsed.ok()) {
      model.Fail("config", path + ": " + parsed.status().message());
      return config;
    }
    return *parsed;
  }
  config.family = model.RequiredChoice<graph::ModelFamily>(
      "model_type", {{"llama", graph::ModelFamily::kLlama}, {"gpt2", graph::ModelFamily::kGpt2}});
  const Range<int64_t> positive{.least = 1, .most = int64_t{1} << 24};
  config.vocab_size = model.Optional<int64_t>("vocab_size", 256, positive);
  config.hidden_size = model.Required<int64_t>("hidden_size", positive);
  config.num_hidden_layers =
      model.Required<int64_t>("num_hidden_layers", {.least = 1, .most = 4096});
  config.num_attention_heads = model.Required<int64_t>("num_attention_heads", positive);
  config.num_key_value_heads =
      model.Optional<int64_t>("num_key_value_heads", config.num_attention_heads, positive);
  config.intermediate_size =
      model.Optional<int64_t>("intermediate_size", 4 * config.hidden_size, positive);
  config.max_position_embeddings =
      model.Optional<int64_t>("max_position_embeddings", 2048, positive);
  config.norm_epsilon = model.Optional<double>("norm_epsilon", 1e-5, {.above = 0.0, .below = 1.0});
  config.rope_theta = model.Optional<double>("rope_theta", 10000.0, {.above = 0.0});
  config.tie_word_embeddings =
      model.Optional<bool>("tie_word_embeddings", config.family == graph::ModelFamily::kGpt2);
  config.qkv_bias = model.Optional<bool>("qkv_bias", false);
  config.initializer_range =
      model.Optional<double>("initializer_range", 0.02, {.least = 0.0, .most = 10.0});
  config.dropout = model.Optional<double>("dropout", 0.0, {.least = 0.0, .below = 1.0});
  const bool complete =
      config.hidden_size > 0 && config.num_hidden_layers > 0 && config.num_attention_heads > 0;
  const Status valid = complete ? graph::ValidateModel(config) : Status::Ok();
  if (!valid.ok()) {
    model.Fail("", valid.message());
  }
  return config;
}

}  // namespace heddle::job
