/// \file
/// The training state that the task `checkpoint` saves: a folder with state.bin, the elements of
/// all tensors, and state.txt, a line a tensor: ROLE DTYPE D0,D1,… OFFSET NAME. Roles are
/// contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The role of the bf16 weights in a state's folder.
inline constexpr const char* kWeightRole = "weight";

struct StateTensor {
  TensorInfo info;
  int64_t offset = 0;  ///< In the state's bytes.
  int64_t bytes() const { return ElementCount(info.shape) * SizeOf(info.dtype); }
};

struct TrainingState {
  std::vector<StateTensor> tensors;
  std::string elements;
  std::span<const std::byte> BytesOf(const StateTensor& tensor) const {
    return std::as_bytes(std::span(elements))
        .subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes()));
  }
};

/// Makes a state of at least `bytes` from the masters and moments of a real checkpoint, and their
/// bf16 weights. Copies of each tensor are stacked along its first dimension; the first copy is the
/// real one. In the others the elements of a row are in an order of their own, each multiplied by a
/// random factor within 1/16 of 1: signs and exponents stay distributed as they were, and nothing
/// can be found twice.
Status MakeState(const std::string& checkpoint, int64_t bytes, const std::string& folder);

/// Errors: those of reading the files, kDataLoss when they do not fit together.
Result<TrainingState> LoadState(const std::string& folder);

}  // namespace heddle::checkpoint
