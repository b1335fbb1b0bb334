#include "engine/data/sample_order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace heddle::data {

SampleOrder::SampleOrder(uint64_t seed, int64_t windows)
    : key_(StreamKey(seed, "data.order")),
      windows_(static_cast<uint64_t>(windows)) {
  HEDDLE_CHECK(windows > 0, "an order needs windows");
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(windows_ - 1)) + 1) / 2);
}

int64_t SampleOrder::Window(int64_t sample) const {
  HEDDLE_CHECK(sample >= 0, "sample {}", sample);
  const uint64_t number = static_cast<uint64_t>(sample);
  const uint64_t epoch = number / windows_;
  uint64_t value = number % windows_;
  // A permutation's cycle that starts below `windows_` comes back there, so the walk ends.
  do {
    value = Permute(epoch, value);
  } while (value >= windows_);
  return static_cast<int64_t>(value);
}

uint64_t SampleOrder::Permute(uint64_t epoch, uint64_t value) const {
  // More rounds than the four that suffice in theory: halves of one or two bits mix slowly.
  constexpr uint64_t kRounds = 8;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    // A half has at most 31 bits, so that the round fits above it.
    const uint64_t mixed = Philox(key_, epoch, (round << 32) | right)[0] & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

}  // namespace heddle::data
