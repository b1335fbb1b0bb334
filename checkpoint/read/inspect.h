/// \file
/// Describes a checkpoint for users and for scripts, by its manifest alone.
#pragma once

#include <string>

#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// A description of several lines: step, generation, guarantee, sizes and ratio, files, then one
/// line per tensor. Ends with a newline.
std::string InspectText(const Manifest& manifest);

/// A line that names the roles whose elements were rounded when they were saved; empty: all
/// elements are exact.
std::string LossyNote(const Manifest& manifest);

/// A description as JSON on one line: {"format": "heddle-checkpoint", "version", "step",
/// "generation", "created", "samples_consumed", "job_hash", "guarantee", "guarantee_reason",
/// "arithmetic": {PART: VALUE}, "bytes", "stored_bytes", "plan", "files": [{"name", "bytes"}],
/// "tensors": [{"name", "role", "dtype", "shape", "bytes", "stored_bytes", "boxes", "digest",
/// "lossy"}]}. A tensor with derived boxes also has "derived_from", a role.
std::string InspectJson(const Manifest& manifest);

}  // namespace heddle::checkpoint
