#include "elastic/control/transition/pace.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {

void Formation::Begin(Time now) {
  since_ = now;
  late_ = false;
}

Formation::Verdict Formation::Look(int candidates, const JobPolicy& policy, Time now) {
  late_ = late_ || now - since_ >= policy.formation_timeout;
  if (candidates > 0 && candidates >= (late_ ? policy.min_workers : policy.initial_workers)) {
    return Verdict::kForm;
  }
  const bool over = late_ && policy.paused_timeout > Duration(0) &&
                    now - since_ >= policy.formation_timeout + policy.paused_timeout;
  return over ? Verdict::kGiveUp : Verdict::kWait;
}

std::optional<Time> Formation::NextDeadline(const JobPolicy& policy) const {
  if (!late_) {
    return since_ + policy.formation_timeout;
  }
  if (policy.paused_timeout > Duration(0)) {
    return since_ + policy.formation_timeout + policy.paused_timeout;
  }
  return std::nullopt;
}

std::optional<EndJob> Recoveries::Begin(int most_without_step, Time now) {
  if (++without_step_ > most_without_step) {
    return EndJob{
        false, false,
        fmt::format("{} recoveries in a row without a completed step", without_step_ - 1)};
  }
  if (!since_) {
    since_ = now;
  }
  return std::nullopt;
}

std::optional<Time> Recoveries::End() {
  return std::exchange(since_, std::nullopt);
}

}  // namespace heddle::elastic
