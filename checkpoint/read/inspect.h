/// \file
/// What a checkpoint holds, for people and for scripts. Reads the manifest alone, never tensor
/// data.
#pragma once

#include <string>

#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// Several lines: step, generation, sizes and ratio, files, then a line a tensor. Ends with a
/// newline.
std::string InspectText(const Manifest& manifest);

/// One line that names the roles whose elements were rounded when they were saved; empty when every
/// element is exact.
std::string LossyNote(const Manifest& manifest);

/// {"format": "heddle-checkpoint", "version", "step", "generation", "created", "samples_consumed",
/// "job_hash", "bytes", "stored_bytes", "plan", "files": [{"name", "bytes"}], "tensors": [{"name",
/// "role", "dtype", "shape", "bytes", "stored_bytes", "boxes", "digest", "lossy"}]}, on one line.
/// A tensor of which boxes are derived also has "derived_from", a role.
std::string InspectJson(const Manifest& manifest);

}  // namespace heddle::checkpoint
