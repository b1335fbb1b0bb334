#include "engine/graph/models/config_fields.h"

#include <algorithm>
#include <iterator>

namespace heddle::graph {
namespace {

constexpr std::string_view kFields[] = {
    // Where the file comes from, and how its reader is to work.
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "chunk_size_feed_forward",
    "dtype",
    "gradient_checkpointing",
    "is_llama_config",
    "max_sequence_length",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "tf_legacy_loss",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "xla_device",
    // Encoders beside a decoder: the fields that add one are refused.
    "cross_attention_hidden_size",
    "is_decoder",
    "tie_encoder_decoder",
    // Tokens.
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "pad_token_id",
    "prefix",
    "sep_token_id",
    "tokenizer_class",
    // Heads for other tasks.
    "_num_labels",
    "finetuning_task",
    "id2label",
    "label2id",
    "num_labels",
    "predict_special_tokens",
    "problem_type",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    // Generation.
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
};

}  // namespace

bool IsIrrelevantField(std::string_view name) {
  return std::find(std::begin(kFields), std::end(kFields), name) != std::end(kFields);
}

}  // namespace heddle::graph
