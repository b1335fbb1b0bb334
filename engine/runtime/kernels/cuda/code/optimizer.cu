#include <initializer_list>

#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int64_t kBlockElements = 4096;  // Of a sum of squares.
constexpr int kThreads = 256;

template <typename T>
__global__ void Squares(const T* values, int64_t count, double* sums) {
  const int64_t first = int64_t{blockIdx.x} * kBlockElements;
  const int64_t end = first + kBlockElements < count ? first + kBlockElements : count;
  double sum = 0;
  for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
    const double value = values[i];
    sum += value * value;
  }
  sum = BlockSum(sum);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

// torch.optim.AdamW with decoupled decay, by element; N elements a thread. It rounds where the
// processor's loop does (../simd/loops/optimizer.cc), and has its bits: workers that hold the same
// parameters compare their state, on whatever they compute.
template <typename T, int N>
__global__ void Update(float* master,
                       float* exp_avg,
                       float* exp_avg_sq,
                       const float* gradient,
                       T* copy,
                       int64_t count,
                       AdamWNumbers f) {
  const int64_t first = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (first >= count) {
    return;
  }
  float p[N];
  float m[N];
  float v[N];
  float g[N];
  Load<float, N>(master + first, p);
  Load<float, N>(exp_avg + first, m);
  Load<float, N>(exp_avg_sq + first, v);
  Load<float, N>(gradient + first, g);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float scaled = __fmul_rn(g[j], f.clip);
    m[j] = __fmaf_rn(m[j], f.beta1, __fmul_rn(scaled, f.rest1));
    v[j] = __fmaf_rn(v[j], f.beta2, __fmul_rn(__fmul_rn(scaled, scaled), f.rest2));
    const float denominator = __fmaf_rn(__fsqrt_rn(v[j]), f.root, f.epsilon);
    p[j] = __fmaf_rn(p[j], f.decay, -__fmul_rn(f.rate, __fdiv_rn(m[j], denominator)));
  }
  Store<float, N>(master + first, p);
  Store<float, N>(exp_avg + first, m);
  Store<float, N>(exp_avg_sq + first, v);
  if (copy != nullptr) {
    Store<T, N>(copy + first, p);
  }
}

// True if all of the memory may be read in packs; the copy of T needs as much as a float at most.
bool BeginsPacks(std::initializer_list<const void*> memory) {
  for (const void* const begin : memory) {
    if (reinterpret_cast<uintptr_t>(begin) % alignof(Pack<float, 4>) != 0) {
      return false;
    }
  }
  return true;
}

template <typename T>
void UpdateAll(float* master,
               float* exp_avg,
               float* exp_avg_sq,
               const float* gradient,
               T* copy,
               int64_t count,
               const AdamWNumbers& numbers,
               Stream stream) {
  constexpr int kPack = 4;
  if (count % kPack == 0 && BeginsPacks({master, exp_avg, exp_avg_sq, gradient, copy})) {
    Update<T, kPack><<<BlocksFor(count, kThreads * kPack), kThreads, 0, stream>>>(
        master, exp_avg, exp_avg_sq, gradient, copy, count, numbers);
  } else {
    Update<T, 1><<<BlocksFor(count, kThreads), kThreads, 0, stream>>>(
        master, exp_avg, exp_avg_sq, gradient, copy, count, numbers);
  }
}

}  // namespace

template <typename T>
void SumSquares(const T* values, int64_t count, double* sums, Stream stream) {
  Squares<T><<<BlocksFor(count, kBlockElements), kThreads, 0, stream>>>(values, count, sums);
}
template void SumSquares(const float* values, int64_t count, double* sums, Stream stream);
template void SumSquares(const double* values, int64_t count, double* sums, Stream stream);

void AdamW(float* master,
           float* exp_avg,
           float* exp_avg_sq,
           const float* gradient,
           Type copy_type,
           void* copy,
           int64_t count,
           const AdamWNumbers& numbers,
           Stream stream) {
  if (copy_type == Type::kBf16) {
    UpdateAll(master, exp_avg, exp_avg_sq, gradient, As<Bf16>(copy), count, numbers, stream);
  } else {
    UpdateAll(master, exp_avg, exp_avg_sq, gradient, As<float>(copy), count, numbers, stream);
  }
}

}  // namespace heddle::runtime::cuda
