#include "checkpoint/digest.h"

#include <bit>
#include <cstring>

#include "checkpoint/layout.h"

namespace heddle::checkpoint {

namespace {

// One 64 by 64 bit multiplication an element, as in wyhash: both factors depend on the index and on
// the bits, so neither moved nor changed elements cancel. The index enters by odd constants, so a
// run advances it by additions.
constexpr uint64_t kIndexA = 0x9E3779B97F4A7C15;
constexpr uint64_t kIndexB = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kStartA = 0x2545F4914F6CDD1D;
constexpr uint64_t kStartB = 0x8EBC6AF09C88C6E3;

__extension__ using Wide = unsigned __int128;

template <typename Word>
Digest DigestWords(const std::byte* elements, int64_t count, int64_t first_index) {
  Digest sum;
  uint64_t a = kStartA + static_cast<uint64_t>(first_index) * kIndexA;
  uint64_t b = kStartB + static_cast<uint64_t>(first_index) * kIndexB;
  for (int64_t i = 0; i < count; ++i) {
    Word word{};
    std::memcpy(&word, elements + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    const uint64_t bits = word;
    const Wide product = static_cast<Wide>(a ^ bits) * (b ^ std::rotl(bits, 32));
    sum.high += static_cast<uint64_t>(product >> 64);
    sum.low += static_cast<uint64_t>(product);
    a += kIndexA;
    b += kIndexB;
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
