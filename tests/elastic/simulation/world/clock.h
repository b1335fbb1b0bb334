/// \file
/// A simulated machine's steady clock: it began at a time of its own, runs a little fast or slow,
/// and may jump forwards, as the clock of a machine that was paused.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/random.h"

namespace heddle::elastic {

/// The steady clock of one machine. Thread: one caller.
class SimClock {
 public:
  SimClock(uint64_t seed, const std::string& machine, Time now) : began_(now) {
    Random random(StreamKey(seed, "clock of " + machine));
    shows_ = Time(std::chrono::seconds(random.Below(1'000'000)));
    per_million_ = random.Between(-kMaxPerMillion, kMaxPerMillion);
  }

  /// The time that the clock shows at the virtual time `now`.
  Time At(Time now) const {
    const int64_t passed = (now - began_).count();
    return shows_ + Duration(passed + passed / kMillion * per_million_ +
                             passed % kMillion * per_million_ / kMillion);
  }
  /// The virtual time at which the clock shows no less than `time`.
  Time When(Time time) const {
    const int64_t passed = (time - shows_).count();
    const int64_t divisor = kMillion + per_million_;
    return began_ +
           Duration(passed / divisor * kMillion + passed % divisor * kMillion / divisor + 2);
  }
  void Jump(Duration time) { shows_ += time; }

 private:
  static constexpr int64_t kMillion = 1'000'000;
  static constexpr int64_t kMaxPerMillion = 5000;

  Time began_;
  Time shows_;  ///< The time that the clock showed at began_.
  int64_t per_million_ = 0;
};

}  // namespace heddle::elastic
