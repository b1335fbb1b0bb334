/// \file
/// The seconds that a step takes under a plan, where they follow from the plan
/// (SimOptions::priced), and the seconds that the planner predicts. A plan divides a step's work by
/// the slowdowns that it assumes; each worker takes as long as its real speed makes it, and some
/// sets of workers take longer together, which the planner cannot know. A worker whose links have
/// become slower takes longer for the exchange, and computes for as long as before.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elastic/control/planning.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The durations of steps under plans. Thread: one caller.
class StepPrices {
 public:
  explicit StepPrices(Cluster& cluster) : cluster_(cluster) {}

  /// Sets the predicted step time of a plan that was found, and keeps the slowdowns that the plan
  /// assumes.
  void Price(const PlanRequest& request, PlanOutcome& outcome);

  /// The seconds that a worker really takes for its part of a step of a generation.
  double SecondsOf(const SimWorker& worker, int64_t generation);
  /// A factor by which a worker takes longer, for no lasting reason, for its part of a step that
  /// begins now.
  double DrawNoise(SimWorker& worker);
  /// The seconds that a step of a generation would really take with its members as they are now,
  /// without noise.
  double SecondsOf(int64_t generation);

  /// SimResult::over_best and worst_estimate, of the plan of a generation.
  double OverBest(int64_t generation);
  double WorstEstimate(int64_t generation);

  /// A plan that was found, with its request.
  struct Found {
    PlanRequest request;
    PlanOutcome outcome;
    std::map<std::string, double> slowdowns;  ///< The slowdowns that the plan assumes, by member.
  };
  /// The plan of `generation`, which was planned.
  const Found& at(int64_t generation) const { return found_.at(generation); }

 private:
  double PredictedSeconds(const Found& plan, const std::map<std::string, double>& slowdowns) const;
  double WorkSeconds() const;

  Cluster& cluster_;
  std::map<int64_t, Found> found_;  ///< The newest plan of each generation.
};

}  // namespace heddle::elastic
