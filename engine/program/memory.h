/// \file
/// Computes the exact memory of a Program: state plus live values over its instructions.
#pragma once

#include <cstdint>

#include "engine/program/program.h"

namespace heddle::program {

/// Bytes of the state: master, two moments and the compute copy of what is held of each parameter. A
/// parameter whose compute type is the master's has no copy.
int64_t StateBytes(const graph::Graph& graph, const Program& program);

/// The largest sum of live slots' bytes during the step. Receives count from their instruction on,
/// sends and what is exchanged until their kFree. Inputs of a reduction count until kVote, because only then it has
/// certainly ended. This is an upper bound, which is reached if links are slower than the
/// computation.
int64_t PeakSlotBytes(const Program& program);

/// Outputs of exchanges and of relaxed sums lie in memory that is shared with other workers of the
/// host if they have so many bytes; a smaller one is copied faster than it is shared.
inline constexpr int64_t kLeastSharedBytes = int64_t{32} << 10;
/// Such memory is taken in slabs of so many bytes, or of one output's: each is a descriptor and a
/// registration, so there are few.
inline constexpr int64_t kSharedSlabBytes = int64_t{16} << 20;
/// The bytes that an output of `bytes` takes of a slab. There are few sizes, so that pieces serve
/// again: four in each doubling, whole pages from kLeastSharedBytes on.
int64_t SharedPieceBytes(int64_t bytes);

/// What the values of a worker that runs the Program take of its host's memory.
struct HostValues {
  int64_t own = 0;     ///< The largest sum of live values that are not in shared memory.
  int64_t pieces = 0;  ///< What was ever taken of slabs, and stays with them.
  int64_t slabs = 0;   ///< All slabs, whole: others map them.
};
/// Follows the Program's values and the slabs that engine/runtime/shared_tensors takes for them.
HostValues HostValuesOf(const Program& program);

/// The most partial sums of an exact sum that devices of a host make together; the host makes others.
inline constexpr int kMostSumAddends = 64;
/// The most memory of its device that a worker takes for such sums.
inline constexpr int64_t kMostSumBytes = int64_t{128} << 20;

}  // namespace heddle::program
