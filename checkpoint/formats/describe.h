/// \file
/// Describes a model file for users and for scripts. Reads no elements.
#pragma once

#include <string>

#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// A description of several lines: format, sizes, then one line per tensor. Ends with a newline.
std::string DescribeText(const TensorSource& source);

/// A description as JSON on one line: {"format", "step", "bytes", "tensors": [{"name", "dtype",
/// "shape", "bytes", "stored_bytes"}]}. A type that Heddle does not know has the file's name for
/// it.
std::string DescribeJson(const TensorSource& source);

}  // namespace heddle::checkpoint
