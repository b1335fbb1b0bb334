/// \file
/// A content digest of a logical tensor that does not depend on how the tensor is split, stored or
/// compressed: the sum, modulo 2^64 in each of two halves, of mix(global index, bits) over the
/// elements (docs/reference/checkpoint-format.md). Saves of one state under different plans have
/// equal digests, which proves a reshard exact without a second copy. It protects against
/// accidents, not against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tensor/shape.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {

/// The digest of `count` elements of `element_size` bytes (1, 2, 4 or 8) that have consecutive
/// global row-major indices from `first_index`. Thread: pure.
Digest DigestRun(const std::byte* elements,
                 int64_t element_size,
                 int64_t count,
                 int64_t first_index);

/// The digest of one box of a tensor. `bytes` holds the box's elements, row-major.
Digest DigestBox(std::span<const std::byte> bytes,
                 int64_t element_size,
                 const Shape& global_shape,
                 const Box& box);

/// The digest of box `part` of a row-major buffer that holds box `held`; both boxes are in the
/// tensor's coordinates.
Digest DigestPart(std::span<const std::byte> bytes,
                  int64_t element_size,
                  const Shape& global_shape,
                  const Box& held,
                  const Box& part);

}  // namespace heddle::checkpoint
