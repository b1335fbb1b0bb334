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
  if (without_step_ == 1) {
    counted_on_.clear();
  }
  if (!since_) {
    since_ = now;
  }
  return std::nullopt;
}

void Recoveries::StepDone() {
  without_step_ = 0;
  first_loss_.clear();
  counted_on_.clear();
}

void Recoveries::NoteLoss(const std::string& worker, const std::string& reason) {
  if (first_loss_.empty()) {
    first_loss_ = worker + ": " + reason;
  }
}

std::string Recoveries::WithFirstLoss(const std::string& reason) const {
  return first_loss_.empty() ? reason : reason + "; the first that ended: " + first_loss_;
}

std::set<std::string> Recoveries::CountOn(const std::set<std::string>& able,
                                          const Roster& roster,
                                          int least) {
  std::set<std::string> names;
  for (const std::string& name : able) {
    if (counted_on_.count(roster.at(name).incarnation) > 0) {
      names.insert(name);
    }
  }
  if (names.empty() || static_cast<int>(names.size()) < least) {
    names = able;
  }
  counted_on_.clear();
  for (const std::string& name : names) {
    counted_on_.insert(roster.at(name).incarnation);
  }
  return names;
}

std::optional<Time> Recoveries::End() {
  return std::exchange(since_, std::nullopt);
}

}  // namespace heddle::elastic
