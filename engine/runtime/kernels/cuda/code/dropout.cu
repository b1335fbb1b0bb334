#include "engine/runtime/kernels/cuda/code/pack.cuh"

namespace heddle::runtime::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // Of a block of random numbers.

struct Words {
  uint32_t word[kWords];
};

// Philox4x32-10, as in base/random.cc (Salmon et al., SC'11).
__device__ inline Words Philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c0;
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// A thread has the elements of one block of random numbers at a time.
template <typename T>
__global__ void Drop(const T* x, T* y, int64_t dim, DropoutMask mask, float scale) {
  const int64_t row = blockIdx.x;
  const auto sample = static_cast<uint64_t>(mask.first_sample + row / mask.length);
  const int64_t first = mask.first + row % mask.length * mask.stride;
  const int64_t end = first + dim;
  x += row * dim - first;  // By the element's number.
  y += row * dim - first;
  for (int64_t block = first / kWords + threadIdx.x; block * kWords < end; block += blockDim.x) {
    const Words words = Philox(mask.key, sample, static_cast<uint64_t>(block));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int64_t element = block * kWords + i;
      if (element >= first && element < end) {
        const bool kept = words.word[i] >= mask.threshold;
        y[element] = Narrowed<T>(kept ? Widened(x[element]) * scale : 0.0F);
      }
    }
  }
}

}  // namespace

void Dropout(const RowShape& shape,
             const DropoutMask& mask,
             const void* x,
             void* y,
             float scale,
             Stream stream) {
  const unsigned threads = ThreadsFor(shape.dim / kWords + 1, kThreads);
  WithFormat(shape.type, false, [&](auto format) {
    using T = typename decltype(format)::Value;
    Drop<T><<<BlocksFor(shape.rows, 1), threads, 0, stream>>>(As<T>(x), As<T>(y), shape.dim, mask,
                                                              scale);
  });
}

}  // namespace heddle::runtime::cuda
