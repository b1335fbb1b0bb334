/// \file
/// When a job may begin, and how often it may begin again.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "elastic/control/actions.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// Waits for the workers of the first generation. Thread: one caller at a time.
class Formation {
 public:
  enum class Verdict : uint8_t { kWait, kForm, kGiveUp };

  void Begin(Time now);
  /// With so many workers that a plan may count on.
  Verdict Look(int candidates, const JobPolicy& policy, Time now);
  /// None: only workers that come change anything.
  std::optional<Time> NextDeadline(const JobPolicy& policy) const;

 private:
  Time since_;
  bool late_ = false;  ///< formation_timeout has passed: the least number will do.
};

/// How often recoveries follow each other, and how long one takes. Thread: one caller at a time.
class Recoveries {
 public:
  /// How the job ends, when it has gone back too often without a step; none: it goes on.
  std::optional<EndJob> Begin(int most_without_step, Time now);
  void StepDone();
  /// Those of `able` that the plan of a recovery counts on. A further one without a step between
  /// leaves out who has come since the first, unless fewer than `least` would be left: a worker
  /// that comes and dies again and again must not keep the job from its next step.
  std::set<std::string> CountOn(const std::set<std::string>& able, const Roster& roster, int least);
  /// A worker was given up, or ended before it came.
  void NoteLoss(const std::string& worker, const std::string& reason);
  /// The reason with that of the first loss since the last completed step, if there was one.
  std::string WithFirstLoss(const std::string& reason) const;
  /// No plan was found with those: the next one may count on all.
  void CountOnAll() { counted_on_.clear(); }
  /// Since the coordinator's own restart.
  void BeginAt(Time since) { since_ = since; }
  /// When the recovery began that is over now; none: there was none.
  std::optional<Time> End();

 private:
  std::optional<Time> since_;
  int without_step_ = 0;
  std::string first_loss_;            ///< Since the last completed step; empty: nobody was lost.
  std::set<std::string> counted_on_;  ///< Incarnations; empty: all may be.
};

}  // namespace heddle::elastic
