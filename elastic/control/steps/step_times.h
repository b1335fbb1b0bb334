/// \file
/// How long the steps of the generation in force take, so that a plan is judged by its measured
/// steps and not by its prediction alone.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace heddle::elastic {

/// The measured steps of one generation.
struct StepLevel {
  double seconds = 0;  ///< Median; single steps with a save or a validation do not matter.
  double noise = 0;    ///< Standard deviation, estimated from the quartiles, over the median.
  int steps = 0;       ///< How many steps were measured.

  /// Two standard errors of the median, over the median.
  double Uncertainty() const;
};

/// The times of the newest steps. Thread: one caller at a time. A copy is an independent machine.
class StepTimes {
 public:
  /// The first steps of a generation, which do not count: caches and clocks settle.
  static constexpr int kExcluded = 5;
  /// The least number of steps that are evaluated.
  static constexpr int kLeast = 8;
  /// How many of the newest steps tell the current speed. Once a change of speed is noticed that is
  /// not a great one, they all come after it, because three windows have as many.
  static constexpr int kNewest = 15;
  /// The most steps that are evaluated to judge a change.
  static constexpr int kMax = 50;
  /// The most steps that are kept.
  static constexpr int kKept = 100;

  void BeginGeneration();
  /// Drops the steps that are kept: the speed has changed since.
  void Clear() { seconds_.clear(); }
  /// Counts a step. Steps come in order, and the first one of another generation drops those before
  /// it. Steps without a positive, finite time are ignored.
  void Count(int64_t generation, double seconds);
  /// The newest steps, at most `most`; nullopt if they are fewer than kLeast.
  std::optional<StepLevel> Newest(int most = kNewest) const;
  /// The number of steps that are kept.
  int counted() const { return static_cast<int>(seconds_.size()); }

 private:
  int64_t generation_ = 0;  ///< The generation of the last step.
  int excluded_ = 0;
  std::deque<double> seconds_;
};

}  // namespace heddle::elastic
