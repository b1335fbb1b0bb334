/// \file
/// When a job without a generation forms one, and how often it may recover without a step between.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "elastic/control/actions.h"
#include "elastic/control/membership/roster.h"
#include "elastic/control/policy.h"

namespace heddle::elastic {

/// Decides when a job without a generation forms one. Thread: one caller at a time.
class Formation {
 public:
  enum class Verdict : uint8_t { kWait, kForm, kGiveUp };

  void Begin(Time now);
  /// Decides with this number of workers that a plan may count on.
  Verdict Look(int candidates, const JobPolicy& policy, Time now);
  /// When Look may decide otherwise; nullopt if only joining workers change anything.
  std::optional<Time> NextDeadline(const JobPolicy& policy) const;

 private:
  Time since_;
  bool late_ = false;  ///< formation_timeout has passed: min_workers are enough.
};

/// Counts recoveries without a completed step between them, and keeps when the current one began.
/// Thread: one caller at a time.
class Recoveries {
 public:
  /// Begins a recovery. Returns the job's end if `most_without_step` recoveries before it were
  /// without a completed step; nullopt if the job continues.
  std::optional<EndJob> Begin(int most_without_step, Time now);
  /// Records that a step was completed.
  void StepDone();
  /// The workers of `able` that the plan of a recovery counts on. A further recovery without a
  /// completed step leaves out workers that joined since the first, unless fewer than `least` would
  /// be left: a worker that joins and dies again and again must not keep the job from its next
  /// step.
  std::set<std::string> CountOn(const std::set<std::string>& able, const Roster& roster, int least);
  /// Records that a worker was given up, or that its process ended before it joined.
  void NoteLoss(const std::string& worker, const std::string& reason);
  /// `reason`, with that of the first loss since the last completed step if there was one.
  std::string WithFirstLoss(const std::string& reason) const;
  /// Lets the next plan count on all workers.
  void CountOnAll() { counted_on_.clear(); }
  /// Counts the time since `since`, the coordinator's restart, as that of a recovery.
  void BeginAt(Time since) { since_ = since; }
  /// Ends the recovery and returns when it began; nullopt if there was none.
  std::optional<Time> End();

 private:
  std::optional<Time> since_;
  int without_step_ = 0;
  std::string first_loss_;            ///< First loss since the last completed step; empty: none.
  std::set<std::string> counted_on_;  ///< Incarnations that plans count on; empty: all.
};

}  // namespace heddle::elastic
