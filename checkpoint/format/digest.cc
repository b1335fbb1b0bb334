#include "checkpoint/format/digest.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "checkpoint/format/layout.h"

namespace heddle::checkpoint {

namespace {

// A 32 by 32 bit multiplication an element and lane, as in XXH3: both factors depend on the index
// and on the bits, so neither moved nor changed elements cancel. The index enters by odd constants,
// so a run advances it by additions.
constexpr uint64_t kStepLow = 0x9E3779B97F4A7C15;
constexpr uint64_t kStepHigh = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kStartLow = 0x2545F4914F6CDD1D;
constexpr uint64_t kStartHigh = 0x8EBC6AF09C88C6E3;

constexpr uint64_t Product(uint64_t key) {
  return (key & 0xFFFFFFFF) * (key >> 32);
}

template <typename Word>
Digest DigestWords(const std::byte* elements, int64_t count, int64_t first_index) {
  Digest sum;
  uint64_t low = kStartLow + static_cast<uint64_t>(first_index) * kStepLow;
  uint64_t high = kStartHigh + static_cast<uint64_t>(first_index) * kStepHigh;
  for (int64_t i = 0; i < count; ++i) {
    Word word{};
    std::memcpy(&word, elements + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    const uint64_t bits = sizeof(Word) < 8 ? word | uint64_t{word} << 32 : word;
    sum.low += Product(low ^ bits);
    sum.high += Product(high ^ bits);
    low += kStepLow;
    high += kStepHigh;
  }
  return sum;
}

#ifdef __x86_64__

constexpr int64_t kLanes = 4;

[[gnu::target("avx2")]] __m256i Keys(uint64_t first, uint64_t step) {
  const std::array<uint64_t, kLanes> keys = {first, first + step, first + 2 * step,
                                             first + 3 * step};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys.data()));
}

[[gnu::target("avx2")]] uint64_t Sum(__m256i lanes) {
  std::array<uint64_t, kLanes> parts{};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(parts.data()), lanes);
  return parts[0] + parts[1] + parts[2] + parts[3];
}

/// Four elements at a time, for processors that can.
template <typename Word>
[[gnu::target("avx2")]] Digest DigestVectors(const std::byte* elements,
                                             int64_t count,
                                             int64_t first_index) {
  const auto first = static_cast<uint64_t>(first_index);
  __m256i low = Keys(kStartLow + first * kStepLow, kStepLow);
  __m256i high = Keys(kStartHigh + first * kStepHigh, kStepHigh);
  const __m256i low_step = Keys(kLanes * kStepLow, 0);
  const __m256i high_step = Keys(kLanes * kStepHigh, 0);
  __m256i low_sum = _mm256_setzero_si256();
  __m256i high_sum = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const std::byte* const from = elements + i * static_cast<int64_t>(sizeof(Word));
    __m256i bits;
    if constexpr (sizeof(Word) == 8) {
      bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    } else if constexpr (sizeof(Word) == 4) {
      bits = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
      bits = _mm256_or_si256(bits, _mm256_slli_epi64(bits, 32));
    } else {
      bits = _mm256_cvtepu16_epi64(_mm_loadu_si64(from));
      bits = _mm256_or_si256(bits, _mm256_slli_epi64(bits, 32));
    }
    const __m256i x = _mm256_xor_si256(low, bits);
    const __m256i y = _mm256_xor_si256(high, bits);
    low_sum = _mm256_add_epi64(low_sum, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
    high_sum = _mm256_add_epi64(high_sum, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
    low = _mm256_add_epi64(low, low_step);
    high = _mm256_add_epi64(high, high_step);
  }
  Digest sum = DigestWords<Word>(elements + i * static_cast<int64_t>(sizeof(Word)), count - i,
                                 first_index + i);
  sum.low += Sum(low_sum);
  sum.high += Sum(high_sum);
  return sum;
}

#endif

template <typename Word>
Digest DigestOf(const std::byte* elements, int64_t count, int64_t first_index) {
#ifdef __x86_64__
  if (sizeof(Word) > 1 && __builtin_cpu_supports("avx2")) {
    return DigestVectors<Word>(elements, count, first_index);
  }
#endif
  return DigestWords<Word>(elements, count, first_index);
}

}  // namespace

Digest DigestRun(const std::byte* elements,
                 int64_t element_size,
                 int64_t count,
                 int64_t first_index) {
  switch (element_size) {
    case 1:
      return DigestOf<uint8_t>(elements, count, first_index);
    case 2:
      return DigestOf<uint16_t>(elements, count, first_index);
    case 4:
      return DigestOf<uint32_t>(elements, count, first_index);
    default:
      return DigestOf<uint64_t>(elements, count, first_index);
  }
}

Digest DigestBox(std::span<const std::byte> bytes,
                 int64_t element_size,
                 const Shape& global_shape,
                 const Box& box) {
  return DigestPart(bytes, element_size, global_shape, box, box);
}

Digest DigestPart(std::span<const std::byte> bytes,
                  int64_t element_size,
                  const Shape& global_shape,
                  const Box& held,
                  const Box& part) {
  Digest sum;
  ForEachRun(global_shape, held, part, [&](int64_t first, int64_t count, int64_t global) {
    sum += DigestRun(bytes.data() + first * element_size, element_size, count, global);
  });
  return sum;
}

}  // namespace heddle::checkpoint
