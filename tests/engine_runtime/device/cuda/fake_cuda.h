/// \file
/// The part of CUDA's runtime that engine/runtime/device/cuda calls for streams and copies, in the
/// host's memory and without a card. This program's functions come before those of libcudart. What
/// is in a stream runs only when somebody asks for an event, and then no more of it than he needs,
/// in turns with other streams: as late as a card may be.
#pragma once

#include <cstdint>

namespace heddle::runtime::cuda::testing {

/// Begins anew. `seed` decides how many questions a piece of work takes.
void ResetCuda(uint64_t seed);
/// From now on nothing ends, or things end again.
void HoldCuda(bool held);
/// From now on all questions about events fail with this cudaError_t.
void FailCuda(int code);
/// Memory that cudaHostAlloc has given and cudaFreeHost not taken back.
int64_t LockedBytes();
/// From now on cudaHostAlloc fails.
void ExhaustHost();

}  // namespace heddle::runtime::cuda::testing
