/// \file
/// How long the steps of the generation in force take, so that a plan is judged by what it does and
/// not by what was predicted of it alone.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace heddle::elastic {

/// Steps of one generation, measured.
struct StepLevel {
  double seconds = 0;  ///< Their median: single steps with a save or a validation change nothing.
  double noise = 0;    ///< Their standard deviation by their quartiles, over the median.
  int steps = 0;

  /// Two standard errors of the median, over it.
  double Uncertainty() const;
};

/// Thread: one caller at a time. A copy is an independent machine.
class StepTimes {
 public:
  /// The first steps of a generation do not count: caches and clocks settle.
  static constexpr int kExcluded = 5;
  /// Fewer say nothing.
  static constexpr int kLeast = 8;
  /// So many of the newest ones are all after a change of speed, once that is noticed: the windows
  /// of three heartbeats have more.
  static constexpr int kNewest = 15;
  /// More say no more.
  static constexpr int kMost = 50;
  /// So many are kept.
  static constexpr int kKept = 100;

  void BeginGeneration();
  /// Steps come in their order. Late ones of an older generation are forgotten when the first one
  /// of the next comes. What takes no time was not measured.
  void Count(int64_t generation, double seconds);
  /// Of the newest ones, `most` at most. None: they are fewer than kLeast.
  std::optional<StepLevel> Newest(int most = kNewest) const;
  /// So many count.
  int counted() const { return static_cast<int>(seconds_.size()); }

 private:
  int64_t generation_ = 0;  ///< Of the last one.
  int excluded_ = 0;
  std::deque<double> seconds_;
};

}  // namespace heddle::elastic
