#include "checkpoint/digest.h"

#include <cstring>

#include "checkpoint/layout.h"

namespace heddle::checkpoint {

namespace {

// Two multiply-xorshift mixers over two different combinations of index and bits. The index enters
// by odd multipliers, so a run advances it by additions.
constexpr uint64_t kIndexHigh = 0x9E3779B97F4A7C15;
constexpr uint64_t kIndexLow = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kBitsHigh = 0xFF51AFD7ED558CCD;
constexpr uint64_t kBitsLow = 0xD6E8FEB86659FD93;
constexpr uint64_t kStartHigh = 0x2545F4914F6CDD1D;
constexpr uint64_t kStartLow = 0x8EBC6AF09C88C6E3;

template <typename Word>
Digest DigestWords(const std::byte* elements, int64_t count, int64_t first_index) {
  Digest sum;
  uint64_t index_high = kStartHigh + static_cast<uint64_t>(first_index) * kIndexHigh;
  uint64_t index_low = kStartLow + static_cast<uint64_t>(first_index) * kIndexLow;
  for (int64_t i = 0; i < count; ++i) {
    Word word{};
    std::memcpy(&word, elements + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    const uint64_t bits = word;
    uint64_t high = index_high ^ (bits * kBitsHigh);
    uint64_t low = index_low + (bits * kBitsLow);
    high = (high ^ (high >> 32)) * kBitsLow;
    low = (low ^ (low >> 29)) * kBitsHigh;
    sum.high += high ^ (high >> 29);
    sum.low += low ^ (low >> 32);
    index_high += kIndexHigh;
    index_low += kIndexLow;
  }
  return sum;
}

}  // namespace

Digest DigestRun(const std::byte* elements,
                 int64_t element_size,
                 int64_t count,
                 int64_t first_index) {
  switch (element_size) {
    case 1:
      return DigestWords<uint8_t>(elements, count, first_index);
    case 2:
      return DigestWords<uint16_t>(elements, count, first_index);
    case 4:
      return DigestWords<uint32_t>(elements, count, first_index);
    default:
      return DigestWords<uint64_t>(elements, count, first_index);
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
