/// \file
/// How long a step takes under a plan, where steps follow from plans (SimOptions::priced), and how
/// long the planner says. A plan shares a step's work out by the slowdowns that it counts on; each
/// worker takes as long as its real speed makes it, and some sets of workers take longer together
/// than anybody knows.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elastic/control/planning.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class StepPrices {
 public:
  explicit StepPrices(Cluster& cluster) : cluster_(cluster) {}

  /// A plan was found: sets what the planner says of its steps, and keeps what it counts on.
  void Price(const PlanRequest& request, PlanOutcome& outcome);

  /// What a worker really takes for its part of a step of a generation.
  double SecondsOf(const SimWorker& worker, int64_t generation);
  /// By so much more a worker takes for its part of a step that begins now, for no lasting reason.
  double DrawNoise(SimWorker& worker);
  /// What a step of a generation would really take with its members as they are now, and no noise.
  double SecondsOf(int64_t generation);

  /// How a plan was found.
  struct Found {
    PlanRequest request;
    PlanOutcome outcome;
    std::map<std::string, double> slowdowns;  ///< That the plan counts on, by member.
  };
  /// Of a generation that was planned.
  const Found& at(int64_t generation) const { return found_.at(generation); }

 private:
  double PredictedSeconds(const Found& plan, const std::map<std::string, double>& slowdowns) const;
  double WorkSeconds() const;

  Cluster& cluster_;
  std::map<int64_t, Found> found_;  ///< By generation, the newest.
};

}  // namespace heddle::elastic
