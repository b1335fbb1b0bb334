/// \file
/// The part of CUDA's language that Heddle's kernels use, on the processor: a block's threads take
/// turns in one thread of the system, from one barrier to the next. In place of CUDA's header of
/// this name.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#define __global__
#define __launch_bounds__(threads)
#define __device__
#define __shared__ static  // One block runs at a time.
#define threadIdx ::hosted::thread_index
#define blockIdx ::hosted::block_index
#define blockDim ::hosted::block_size

struct dim3 {
  dim3(unsigned x_size, unsigned y_size = 1) : x(x_size), y(y_size) {}
  unsigned x;
  unsigned y;
};

namespace hosted {

extern dim3 thread_index;  ///< Of the thread whose turn it is.
extern dim3 block_index;
extern dim3 block_size;

/// Runs `kernel` once for each thread of each block.
void Launch(dim3 blocks, dim3 threads, const std::function<void()>& kernel);
/// Lets the other threads of the block take their turns up to their next call.
void Barrier();
/// The value of the thread whose number differs by `mask`; all threads of the block call it.
double Exchange(double value, unsigned mask);
/// Whether the value of every thread of the block is true.
bool All(bool value);

}  // namespace hosted

using std::isnan;

// Each rounds once, to nearest.
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}

inline void __syncthreads() {
  hosted::Barrier();
}
inline int __syncthreads_and(int value) {
  return hosted::All(value != 0) ? 1 : 0;
}
template <typename T>
T __shfl_xor_sync(unsigned /*lanes*/, T value, int mask) {
  return static_cast<T>(hosted::Exchange(static_cast<double>(value), static_cast<unsigned>(mask)));
}
