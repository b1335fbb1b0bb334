/// \file
/// Boxes of strided tensors (transposed, sliced, expanded) that lie in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "base/tensor/shape.h"
#include "checkpoint/files/file_access.h"

namespace heddle::checkpoint {

/// A view of a storage, as PyTorch means it: element (i, j, …) is the storage's element number
/// offset + i * stride[0] + j * stride[1] + …
struct StridedView {
  int64_t offset = 0;
  Shape shape;
  Shape stride;  ///< As many as extents; 0: the same elements again.
  int64_t element_bytes = 0;
};

/// Whether every element lies among the storage's `elements`. Errors: kDataLoss for another number
/// of strides than of extents, more than kMaximumRank of them, negative numbers, a shape of more
/// than 2^62 elements, an element outside the storage.
Status CheckView(const StridedView& view, int64_t elements);

/// Reads box `box` of a checked view row-major into `out`. The storage begins at byte `begin` of
/// `file`. Reads at most eight times the bytes that the box needs, and holds 4 MiB beside `out`.
/// The box lies in the shape, and `out` has its size. Errors: those of reading. Thread: any.
Status ReadView(const StridedView& view,
                const Box& box,
                const SourceFile& file,
                int64_t begin,
                std::span<std::byte> out);

}  // namespace heddle::checkpoint
