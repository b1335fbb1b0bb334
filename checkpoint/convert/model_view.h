/// \file
/// A model under other names and layouts: the same tensors as Heddle names them, or as Hugging
/// Face's files do. A view reads through to the file, box by box, so that nothing is ever converted
/// as a whole in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Whose names a model's tensors have.
enum class Naming {
  kHeddle,       ///< "layers.0.attention.query.weight": of the graph (engine/graph/models).
  kHuggingFace,  ///< "model.layers.0.self_attn.q_proj.weight": of config.json's model_type.
};

struct ModelView {
  std::unique_ptr<TensorSource> source;
  /// What the user should know: tensors that are left out, names that stay as they are. One line
  /// each.
  std::vector<std::string> notes;
  /// Whether the names are now those that were asked for. False: config.json is missing or
  /// describes no model that Heddle knows, and the names are the file's own.
  bool renamed = false;
};

/// The weights of `source` under `naming`; moments are left out. A tensor that one side joins and
/// the other keeps apart, or keeps transposed, is read through. Rows that pad a vocabulary are cut
/// off, when they are zeros. Errors: kInvalidArgument when the tensors are not those of the model
/// that config.json describes: missing, unexpected, or of another shape, by name.
Result<ModelView> ViewAs(std::unique_ptr<TensorSource> source, Naming naming);

/// The role of weights in native checkpoints.
inline constexpr const char* kWeightRole = "master";

}  // namespace heddle::checkpoint
