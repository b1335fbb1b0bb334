/// \file
/// The launcher of sums in tree order (engine/runtime/device/peer_memory.h). It queues work in a
/// stream and returns at once; a failed launch is CUDA's last error. Thread: any, on the stream's
/// card.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it.

namespace heddle::runtime::cuda {

constexpr int kMostTreeAddends = 64;
constexpr int kMostTreePending = 12;

/// What is added: addend i is put onto a stack, then additions[i] times the two newest values become
/// their sum. One value is left, and no more than kMostTreePending were there at once.
struct TreeAddends {
  const void* memory[kMostTreeAddends];  ///< Of this card, or of others that it reads.
  uint8_t additions[kMostTreeAddends];
  int count;
};

/// sum = the sum of the addends' elements, each of them rounded as on the processor. `sum` may be
/// exactly one of the addends.
void AddTree(const TreeAddends& addends, float* sum, int64_t elements, CUstream_st* stream);
void AddTree(const TreeAddends& addends, double* sum, int64_t elements, CUstream_st* stream);

}  // namespace heddle::runtime::cuda
