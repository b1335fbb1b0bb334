/// \file
/// Finds the low-precision copies of a model that need not be stored, because they are the rounded
/// fp32 masters.
#pragma once

#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Marks (OutputTensor::derived_from) every output of role "weight" in bf16 or fp16 whose elements
/// all equal the fp32 elements of the output of the same name and role "master", rounded to nearest
/// even. Reads both and compares every bit, in bounded memory. `outputs[i]` is tensor i of
/// `source`; a tensor whose element type is converted is never marked. Errors: those of reading.
Status MarkDerived(const TensorSource& source, std::vector<OutputTensor>& outputs);

}  // namespace heddle::checkpoint
