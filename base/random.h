/// \file
/// Random numbers as a function of logical coordinates: Philox4x32-10 (Salmon et al., SC'11) keyed
/// by a seed and a name, without state that a change of plan could lose.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace heddle {

/// The block of four 32-bit words for (key, counter). Thread: pure.
std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_high, uint64_t counter_low);

/// The key of a named stream of `seed`, for example "layers.0.attention.wq".
uint64_t StreamKey(uint64_t seed, std::string_view name);

/// A stateful sequence for tests, sampling of faults and jitter: the blocks of one key in order.
class Random {
 public:
  explicit Random(uint64_t seed) : key_(seed) {}
  uint64_t Next();
  /// A uniform number in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  /// A uniform number in [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  /// A uniform number in [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace heddle
