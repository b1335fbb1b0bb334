/// \file
/// Views of a model with other names and layouts of its tensors: those of Heddle, or those of
/// Hugging Face's files. A view reads from the file box by box, so that no tensor is converted as a
/// whole in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// The naming scheme of a model's tensors.
enum class Naming {
  kHeddle,       ///< Names of the graph (engine/graph/models): "layers.0.attention.query.weight".
  kHuggingFace,  ///< Names of config.json's model_type: "model.layers.0.self_attn.q_proj.weight".
};

struct ModelView {
  std::unique_ptr<TensorSource> source;
  /// Lines for the user: tensors that are left out, names that are unchanged.
  std::vector<std::string> notes;
  /// Whether the tensors have the requested names. False: config.json is missing or describes no
  /// model that Heddle knows, and the names are those of the file.
  bool renamed = false;
};

/// A view of the weights of `source` with the names of `naming`; moments are left out. Tensors that
/// one scheme joins and the other splits or transposes are mapped to each other. Rows that pad a
/// vocabulary are cut off if they are zeros. Errors: kInvalidArgument, which names a tensor that is
/// missing, unexpected or of another shape in the model that config.json describes.
Result<ModelView> ViewAs(std::unique_ptr<TensorSource> source, Naming naming);

/// The role of weights in native checkpoints.
inline constexpr const char* kWeightRole = "master";

}  // namespace heddle::checkpoint
