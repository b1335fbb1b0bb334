/// \file
/// Reads boxes of strided tensors (transposed, sliced, expanded) from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/tensor/shape.h"
#include "checkpoint/files/file_access.h"

namespace heddle::checkpoint {

/// A view of a storage, as in PyTorch: element (i, j, …) is the storage's element number
/// offset + i * stride[0] + j * stride[1] + …
struct StridedView {
  int64_t offset = 0;
  Shape shape;
  Shape stride;  ///< One stride per extent; 0 repeats the same elements.
  int64_t element_bytes = 0;
};

/// Checks that every element lies in a storage of `elements` elements. Errors: kDataLoss (not as
/// many strides as extents, more than kMaxRank of them, negative numbers, a shape of more than
/// 2^62 elements, an element outside the storage).
Status CheckView(const StridedView& view, int64_t elements);

/// Reads box `box` of a checked view row-major into `out`. The storage begins at byte `begin` of
/// `file`. The box lies in the shape, and `out` has its size. Reads at most eight times the bytes
/// of the box, and needs 4 MiB of memory beside `out`. Errors: those of reading. Thread: any.
Status ReadView(const StridedView& view,
                const Box& box,
                const SourceFile& file,
                int64_t begin,
                std::span<std::byte> out);

}  // namespace heddle::checkpoint
