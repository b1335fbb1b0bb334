/// \file
/// The order of samples: a pure function of (seed, sample number). So the state of the loader is
/// the step number, and no plan, worker or restart can change which sample comes next.
#pragma once

#include <cstdint>

namespace heddle::data {

/// The mapping of samples to windows: sample n is window Window(n) of the training data. Every
/// epoch (`windows` consecutive samples) visits each window exactly once, in an order of its own.
///
/// Cost:   O(1) memory and time: a Feistel network permutes [0, 4^k), the smallest such range that
///         contains the windows, and is applied until the result is one of them (fewer than four
///         times on average).
/// Thread: pure.
/// Source: Black & Rogaway 2002, "Ciphers with arbitrary finite domains" (cycle walking), with
///         Philox as the round function.
class SampleOrder {
 public:
  /// `windows` > 0.
  SampleOrder(uint64_t seed, int64_t windows);

  /// The window of sample `sample` >= 0.
  int64_t Window(int64_t sample) const;

 private:
  uint64_t Permute(uint64_t epoch, uint64_t value) const;

  uint64_t key_;
  uint64_t windows_;
  int half_bits_;
};

}  // namespace heddle::data
