#include <cuda_runtime.h>

#include "engine/runtime/device/cuda/code/add_tree.h"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void AddElements(TreeAddends addends, T* sum, int64_t elements) {
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= elements) {
    return;
  }
  T pending[kMostTreePending];
  int count = 0;
  for (int i = 0; i < addends.count; ++i) {
    T newest = static_cast<const T*>(addends.memory[i])[index];
    for (int left = addends.additions[i]; left > 0; --left) {
      newest = pending[--count] + newest;
    }
    pending[count++] = newest;
  }
  sum[index] = pending[0];
}

unsigned BlocksFor(int64_t elements) {
  return static_cast<unsigned>((elements + kThreads - 1) / kThreads);
}

}  // namespace

void AddTree(const TreeAddends& addends, float* sum, int64_t elements, CUstream_st* stream) {
  AddElements<float><<<BlocksFor(elements), kThreads, 0, stream>>>(addends, sum, elements);
}

void AddTree(const TreeAddends& addends, double* sum, int64_t elements, CUstream_st* stream) {
  AddElements<double><<<BlocksFor(elements), kThreads, 0, stream>>>(addends, sum, elements);
}

}  // namespace heddle::runtime::cuda
