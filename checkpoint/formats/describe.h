/// \file
/// What a model file holds, for people and for scripts. Reads no elements.
#pragma once

#include <string>

#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Several lines: format, sizes, then a line a tensor. Ends with a newline.
std::string DescribeText(const TensorSource& source);

/// {"format", "step", "bytes", "tensors": [{"name", "dtype", "shape", "bytes", "stored_bytes"}]},
/// on one line. A type that Heddle does not know is named as the file names it.
std::string DescribeJson(const TensorSource& source);

}  // namespace heddle::checkpoint
