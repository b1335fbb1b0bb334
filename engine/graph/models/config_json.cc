/// \file
/// Hugging Face's config.json. Every field is honoured, known not to concern what is computed
/// (docs/reference/models.md lists them), or refused by name. Defaults are those of transformers'
/// configuration classes.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "engine/graph/models/config_fields.h"
#include "engine/graph/models/model.h"

namespace heddle::graph {
namespace {

using Json = nlohmann::json;

/// A value in a message: nested ones may be of any size and depth, so they are only named.
std::string Shown(const Json& value) {
  constexpr size_t kMax = 80;
  if (value.is_structured()) {
    return value.is_array() ? "an array" : "an object";
  }
  const std::string text = value.dump();
  return text.size() <= kMax ? text : "a long text";
}

/// Typed reads of one object; the first error stays.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  const Status& status() const { return status_; }

  bool Has(const char* key) const { return object_.contains(key); }

  /// The key's value, or nullptr when it is absent or null.
  const Json* Find(const char* key) {
    const Json* const found = Take(key);
    return found == nullptr || found->is_null() ? nullptr : found;
  }

  void Required(const char* key, int64_t& value) {
    if (Find(key) == nullptr) {
      Fail(InvalidArgumentError("{}: missing", key));
    }
    Nullable(key, value);
  }

  /// Null is the same as absent.
  void Nullable(const char* key, int64_t& value) {
    if (Find(key) != nullptr) {
      Optional(key, value);
    }
  }

  void Optional(const char* key, int64_t& value) {
    const Json* const found = Take(key);
    if (found == nullptr) {
      return;
    }
    if (!found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX})) {
      return Fail(InvalidArgumentError("{}: expected an integer, got {}", key, Shown(*found)));
    }
    value = found->get<int64_t>();
  }

  void Optional(const char* key, double& value) {
    if (const Json* const found = Take(key)) {
      if (!found->is_number()) {
        return Fail(InvalidArgumentError("{}: expected a number, got {}", key, Shown(*found)));
      }
      value = found->get<double>();
    }
  }

  void Optional(const char* key, bool& value) {
    if (const Json* const found = Take(key)) {
      if (!found->is_boolean()) {
        return Fail(InvalidArgumentError("{}: expected true or false, got {}", key, Shown(*found)));
      }
      value = found->get<bool>();
    }
  }

  /// The key, where it is given, must have one of these values.
  void Only(const char* key, std::initializer_list<Json> allowed) {
    const Json* const found = Find(key);
    if (found == nullptr || std::find(allowed.begin(), allowed.end(), *found) != allowed.end()) {
      return;
    }
    Fail(InvalidArgumentError("{}: {} is not supported, only {}", key, Shown(*found),
                              allowed.begin()->dump()));
  }

  /// A list, where it is given, has no other item than this one.
  void OnlyItems(const char* key, const Json& item) {
    const Json* const found = Find(key);
    if (found != nullptr &&
        (!found->is_array() || std::any_of(found->begin(), found->end(),
                                           [&](const Json& other) { return other != item; }))) {
      Fail(InvalidArgumentError("{}: only {} is supported", key, item.dump()));
    }
  }

  /// Whatever was not asked for, has a value and is not `irrelevant` may change the model.
  void RefuseOthers(bool (*irrelevant)(std::string_view)) {
    for (const auto& [key, value] : object_.items()) {
      if (!value.is_null() && !taken_.contains(key) && !irrelevant(key)) {
        constexpr size_t kMax = 80;
        return Fail(InvalidArgumentError("{}: is not known, and may change the model",
                                         key.size() <= kMax ? key : "a field with a long name"));
      }
    }
  }

  void Fail(Status status) {
    if (status_.ok()) {
      status_ = std::move(status);
    }
  }

 private:
  const Json* Take(const char* key) {
    taken_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }

  const Json& object_;
  std::set<std::string> taken_;
  Status status_;
};

/// transformers 5 keeps rotary settings in an object of their own.
void ReadRope(Reader& reader, double& theta) {
  reader.Optional("rope_theta", theta);
  bool given = reader.Has("rope_theta");
  for (const char* const key : {"rope_parameters", "rope_scaling"}) {
    const Json* const found = reader.Find(key);
    if (found == nullptr) {
      continue;
    }
    if (!found->is_object()) {
      return reader.Fail(
          InvalidArgumentError("{}: expected an object, got {}", key, Shown(*found)));
    }
    Reader rope(*found);
    // transformers 5 takes "default" for rope_parameters without a type, and 4 raises an error.
    if (key == std::string_view("rope_scaling") && rope.Find("rope_type") == nullptr &&
        rope.Find("type") == nullptr) {
      rope.Fail(InvalidArgumentError("rope_type: missing"));
    }
    rope.Only("rope_type", {"default"});
    rope.Only("type", {"default"});
    rope.Only("partial_rotary_factor", {1.0});
    double own = theta;
    rope.Optional("rope_theta", own);
    if (given && own != theta) {
      rope.Fail(InvalidArgumentError("rope_theta: {} differs from {} beside it", own, theta));
    }
    given = given || rope.Has("rope_theta");
    theta = own;
    rope.RefuseOthers([](std::string_view /*key*/) { return false; });
    if (!rope.status().ok()) {
      return reader.Fail(rope.status().WithContext("{}", key));
    }
  }
}

/// Within its window Mistral is Llama: it bounds the sequences.
void ReadMistral(Reader& reader, ModelConfig& config) {
  int64_t window = 4096;  // transformers' default; null in the file: none.
  if (reader.Find("sliding_window") != nullptr || !reader.Has("sliding_window")) {
    reader.Optional("sliding_window", window);
    config.max_position_embeddings = std::min(config.max_position_embeddings, window);
  }
}

void ReadQwen2(Reader& reader, ModelConfig& config) {
  reader.Only("use_sliding_window", {false});
  reader.Find("sliding_window");  // These two are of the windows that it does not use.
  reader.Find("max_window_layers");
  reader.Only("use_mrope", {false});
  config.qkv_bias = true;
}

void ReadHeadDim(Reader& reader, const ModelConfig& config) {
  int64_t head_dim = 0;
  reader.Nullable("head_dim", head_dim);
  if (reader.status().ok() && head_dim != 0 &&
      (head_dim < 0 || config.num_attention_heads < 1 ||
       config.hidden_size % config.num_attention_heads != 0 ||
       head_dim != config.hidden_size / config.num_attention_heads)) {
    reader.Fail(InvalidArgumentError("head_dim: {} is not hidden_size {} / num_attention_heads {}",
                                     head_dim, config.hidden_size, config.num_attention_heads));
  }
}

/// In what the defaults of LlamaConfig, MistralConfig and Qwen2Config differ.
struct LlamaDefaults {
  int64_t num_key_value_heads = 0;  ///< 0: as many as heads.
  int64_t max_position_embeddings = 2048;
};

ModelConfig ReadLlama(Reader& reader, const LlamaDefaults& defaults) {
  ModelConfig config;
  config.family = ModelFamily::kLlama;
  config.norm_epsilon = 1e-6;
  reader.Required("vocab_size", config.vocab_size);
  reader.Required("hidden_size", config.hidden_size);
  reader.Required("intermediate_size", config.intermediate_size);
  reader.Required("num_hidden_layers", config.num_hidden_layers);
  reader.Required("num_attention_heads", config.num_attention_heads);
  const bool by_default = defaults.num_key_value_heads > 0 && !reader.Has("num_key_value_heads");
  config.num_key_value_heads =
      by_default ? defaults.num_key_value_heads : config.num_attention_heads;
  reader.Nullable("num_key_value_heads", config.num_key_value_heads);
  config.max_position_embeddings = defaults.max_position_embeddings;
  reader.Optional("max_position_embeddings", config.max_position_embeddings);
  reader.Optional("rms_norm_eps", config.norm_epsilon);
  reader.Optional("tie_word_embeddings", config.tie_word_embeddings);
  reader.Optional("initializer_range", config.initializer_range);
  ReadRope(reader, config.rope_theta);
  reader.Only("partial_rotary_factor", {1.0});
  reader.Only("rope_interleaved", {false});
  reader.Only("hidden_act", {"silu", "swish"});
  reader.Only("attention_bias", {false});
  reader.Only("mlp_bias", {false});
  reader.Only("attention_dropout", {0.0});
  reader.OnlyItems("layer_types", "full_attention");
  reader.Find("pretraining_tp");  // Products in several parts, with the same sums.
  ReadHeadDim(reader, config);
  return config;
}

/// GPT2Config takes its fields under the names of other families, too.
Status ResolveGpt2Names(Json& object) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"hidden_size", "n_embd"},
      {"max_position_embeddings", "n_positions"},
      {"num_attention_heads", "n_head"},
      {"num_hidden_layers", "n_layer"}};
  for (const auto& [other, name] : kNames) {
    const auto found = object.find(other);
    if (found == object.end()) {
      continue;
    }
    if (object.contains(name) && object[name] != *found) {
      return InvalidArgumentError("{}: {} differs from {} {}", other, Shown(*found), name,
                                  Shown(object[name]));
    }
    object[name] = *found;
    object.erase(other);
  }
  return Status::Ok();
}

ModelConfig ReadGpt2(Reader& reader) {
  ModelConfig config;
  config.family = ModelFamily::kGpt2;
  config.tie_word_embeddings = true;
  config.dropout = 0.1;
  config.max_position_embeddings = 1024;
  reader.Required("vocab_size", config.vocab_size);
  reader.Required("n_embd", config.hidden_size);
  reader.Required("n_layer", config.num_hidden_layers);
  reader.Required("n_head", config.num_attention_heads);
  config.num_key_value_heads = config.num_attention_heads;
  reader.Optional("n_positions", config.max_position_embeddings);
  if (reader.status().ok() && config.hidden_size > 0 && config.hidden_size <= INT32_MAX) {
    config.intermediate_size = 4 * config.hidden_size;
  }
  reader.Nullable("n_inner", config.intermediate_size);
  reader.Optional("layer_norm_epsilon", config.norm_epsilon);
  reader.Optional("initializer_range", config.initializer_range);
  reader.Optional("tie_word_embeddings", config.tie_word_embeddings);
  reader.Only("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  reader.Only("scale_attn_weights", {true});
  reader.Only("scale_attn_by_inverse_layer_idx", {false});
  reader.Optional("resid_pdrop", config.dropout);
  reader.Find("reorder_and_upcast_attn");  // The same numbers, computed otherwise.
  reader.Find("n_ctx");                    // n_positions in files of old.
  // Attention probabilities are not dropped, as with every fused attention.
  reader.Find("attn_pdrop");
  // One probability serves the embeddings and both halves of a layer.
  double embedding_dropout = 0.1;
  reader.Optional("embd_pdrop", embedding_dropout);
  if (reader.status().ok() && embedding_dropout != config.dropout) {
    reader.Fail(InvalidArgumentError("embd_pdrop: {} differs from resid_pdrop {}",
                                     embedding_dropout, config.dropout));
  }
  return config;
}

Result<ModelConfig> ReadFamily(Json& object) {
  const auto type = object.find("model_type");
  if (type == object.end() || type->is_null()) {
    return InvalidArgumentError("model_type: missing");
  }
  if (*type == "gpt2") {
    HEDDLE_RETURN_IF_ERROR(ResolveGpt2Names(object));
  }
  Reader reader(object);
  reader.Find("model_type");
  reader.Only("is_encoder_decoder", {false});
  reader.Only("add_cross_attention", {false});
  reader.Only("pruned_heads", {Json::object(), Json::array()});
  ModelConfig config;
  if (*type == "llama") {
    config = ReadLlama(reader, {});
  } else if (*type == "mistral") {
    config = ReadLlama(reader, {.num_key_value_heads = 8, .max_position_embeddings = 4096 * 32});
    ReadMistral(reader, config);
  } else if (*type == "qwen2") {
    config = ReadLlama(reader, {.num_key_value_heads = 32, .max_position_embeddings = 32768});
    ReadQwen2(reader, config);
  } else if (*type == "gpt2") {
    config = ReadGpt2(reader);
  } else {
    return InvalidArgumentError(
        "model_type: expected \"llama\", \"mistral\", \"qwen2\" or \"gpt2\", got {}", Shown(*type));
  }
  reader.RefuseOthers(IsIrrelevantField);
  HEDDLE_RETURN_IF_ERROR(reader.status());
  return config;
}

Json LlamaJson(const ModelConfig& config) {
  return {{"architectures", {config.qkv_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
          {"model_type", config.qkv_bias ? "qwen2" : "llama"},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.num_hidden_layers},
          {"num_attention_heads", config.num_attention_heads},
          {"num_key_value_heads", config.num_key_value_heads},
          {"max_position_embeddings", config.max_position_embeddings},
          {"rms_norm_eps", config.norm_epsilon},
          {"rope_theta", config.rope_theta},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"initializer_range", config.initializer_range}};
}

Json Gpt2Json(const ModelConfig& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", config.vocab_size},
          {"n_embd", config.hidden_size},
          {"n_inner", config.intermediate_size},
          {"n_layer", config.num_hidden_layers},
          {"n_head", config.num_attention_heads},
          {"n_positions", config.max_position_embeddings},
          {"layer_norm_epsilon", config.norm_epsilon},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", config.dropout},
          {"resid_pdrop", config.dropout},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"initializer_range", config.initializer_range}};
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view json) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) {
    return InvalidArgumentError("config.json: not valid JSON");
  }
  if (!object.is_object()) {
    return InvalidArgumentError("config.json: expected an object");
  }
  HEDDLE_ASSIGN_OR_RETURN(const ModelConfig config, ReadFamily(object));
  HEDDLE_RETURN_IF_ERROR(ValidateModel(config));
  return config;
}

std::string ModelConfigJson(const ModelConfig& config) {
  return (config.family == ModelFamily::kLlama ? LlamaJson(config) : Gpt2Json(config)).dump(2) +
         "\n";
}

}  // namespace heddle::graph
