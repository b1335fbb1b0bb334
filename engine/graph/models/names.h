/// \file
/// Where our parameters lie in Hugging Face's checkpoints.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/models/model.h"

namespace heddle::graph {

/// Our parameter `name` is the part `box` of their tensor `foreign_name`, transposed when
/// `transpose` is set: GPT-2's Conv1D keeps [in, out] where a linear layer has [out, in], and joins
/// query, key and value.
struct NameMapping {
  std::string name;
  Shape shape;  ///< Ours.
  std::string foreign_name;
  Shape foreign_shape;
  Box box;  ///< In their layout; of shape `shape`, or its transpose.
  bool transpose = false;
};

/// One entry a parameter, in the order of the graph's parameters; together the boxes cover each
/// foreign tensor. A tied head has no entry: neither side stores it twice. `config` must be valid
/// (ValidateModel). Names are those that LlamaForCausalLM and GPT2LMHeadModel write; files of the
/// bare GPT2Model lack the prefix "transformer.".
std::vector<NameMapping> HuggingFaceNames(const ModelConfig& config);

}  // namespace heddle::graph
