/// \file
/// The pause after an answer to drift.
#pragma once

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// A pause in noticing drift that grows while answers follow each other. Thread: one caller at a
/// time. A copy is an independent machine.
class DriftPause {
 public:
  bool IsOver(Time now) const { return !until_ || now >= *until_; }

  /// Begins a pause: twice as long as the last one, or DriftPolicy::cooldown if more than ten times
  /// the last one has passed since it began.
  void Begin(const DriftPolicy& policy, Time now) {
    constexpr int kCalm = 10;
    const bool calm = !began_ || now - *began_ > kCalm * length_;
    length_ = calm ? policy.cooldown : std::min(2 * length_, policy.longest_cooldown);
    began_ = now;
    until_ = now + length_;
  }

 private:
  Duration length_{0};
  std::optional<Time> began_;
  std::optional<Time> until_;
};

}  // namespace heddle::elastic
