/// \file
/// The section `model` of a job file.
#pragma once

#include "base/yaml/yaml.h"
#include "engine/graph/models/model.h"

namespace heddle::job {

/// Reads the section, or the model's own description that it names. Problems are recorded in `model`.
graph::ModelConfig ReadModel(YamlReader model);

}  // namespace heddle::job
