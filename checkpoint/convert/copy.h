/// \file
/// Copies one tensor from a source to a sink, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/status.h"
#include "base/tensor/dtype.h"
#include "checkpoint/convert/cast.h"
#include "checkpoint/formats/format.h"

namespace heddle::checkpoint {

/// Reads tensor `index` of `source`, which has a dtype, from front to back in tiles of 32 MiB and
/// appends it to `sink` as elements of `dtype`. `progress`, when given, is called with the bytes of
/// each tile. Errors: those of reading, writing and Cast, which name the tensor.
Status CopyTensor(const TensorSource& source,
                  size_t index,
                  DType dtype,
                  TensorSink& sink,
                  const std::function<void(int64_t)>& progress);

}  // namespace heddle::checkpoint
