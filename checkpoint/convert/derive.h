/// \file
/// Which low-precision copies of a model need not be stored, because they are their fp32 master
/// rounded.
#pragma once

#include <vector>

#include "base/status.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Marks (OutputTensor::derived_from) every output of role "weight" in bf16 or fp16 whose elements
/// all are those of the output of the same name and role "master", in fp32, rounded to nearest
/// even: reads both and compares every bit, in bounded memory. `outputs[i]` is tensor i of
/// `source`; one that changes its element type on the way is never marked. Errors: those of
/// reading.
Status MarkDerived(const TensorSource& source, std::vector<OutputTensor>& outputs);

}  // namespace heddle::checkpoint
