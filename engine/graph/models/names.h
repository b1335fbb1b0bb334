/// \file
/// The mapping of Heddle's parameters to the tensors of Hugging Face's checkpoints.
#pragma once

#include <string>
#include <vector>

#include "engine/graph/models/model.h"

namespace heddle::graph {

/// Heddle's parameter `name` is the part `box` of Hugging Face's tensor `foreign_name`, transposed
/// if `transpose` is set: GPT-2's Conv1D stores [in, out] where a linear layer has [out, in], and
/// joins query, key and value.
struct NameMapping {
  std::string name;
  Shape shape;  ///< Shape of Heddle's parameter.
  std::string foreign_name;
  Shape foreign_shape;
  Box box;  ///< Box of the foreign tensor; its extent is `shape`, or its transpose.
  bool transpose = false;
};

/// The mappings of all parameters, in the order of the graph's parameters; their boxes together
/// cover each foreign tensor. A tied head has no entry, as neither side stores it twice. `config`
/// must be valid (ValidateModel). The names are those that LlamaForCausalLM and GPT2LMHeadModel
/// write; files of the bare GPT2Model lack the prefix "transformer.".
std::vector<NameMapping> HuggingFaceNames(const ModelConfig& config);

}  // namespace heddle::graph
