/// \file
/// What a change of plan promised, and what it achieved. Once the steps after a voluntary change
/// are known well enough, they are compared with those before it. A change that made steps slower
/// is taken back, once, and the same change is not tried again.
///
/// Steps are known well enough if two standard errors of their median are at most 2 % of it. How
/// many steps that takes depends on their noise: at least 8 and at most 50. While a worker's speed
/// seems to change, up to 100 steps are waited for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/outbox.h"
#include "elastic/control/steps/step_times.h"

namespace heddle::elastic {

/// A change of plan: the members of the plan in force, and the candidates for the next plan.
struct Change {
  struct Party {
    uint64_t profile = 0;  ///< Hash of the worker's profile.
    double slowdown = 1;
  };
  std::vector<std::string> members;         ///< Members of the plan in force, by rank.
  std::map<std::string, Party> candidates;  ///< By worker name.
};

/// A plan that was in force.
struct FormerPlan {
  std::string plan_json;
  std::vector<std::string> members;
  double step_seconds = 0;  ///< Measured seconds of a step.
};

/// What a change promised.
struct Promise {
  Change change;
  std::string plan_json;            ///< The plan before the change.
  std::optional<StepLevel> before;  ///< Measured steps of that plan; nullopt: too few were.
  double step_seconds = 0;          ///< Promised seconds of a step.
  double cost_seconds = 0;          ///< Predicted seconds without training for a change.
};

/// What a change achieved, in seconds of a step.
struct Outcome {
  int64_t generation = 0;  ///< The generation that the change began.
  double promised_seconds = 0;
  double realised_seconds = 0;
  std::optional<double> before_seconds;  ///< nullopt: too few steps were measured.
};

/// Compares the steps after a change with those before it. Thread: one caller at a time. A copy is
/// an independent machine.
class Outcomes {
 public:
  /// A generation comes into force, and the promise of the one before is dropped. `promise`
  /// nullopt: the change was not voluntary. `goes_back`: its plan is the one that Judge returned.
  void Begin(int64_t generation, std::optional<Promise> promise, bool goes_back, Outbox& out);
  /// Drops the promise: workers or links have changed, so a comparison would not be about the plan.
  void Drop() { promise_.reset(); }
  const std::optional<Promise>& promise() const { return promise_; }

  /// What Judge needs to know beside the steps.
  struct Circumstances {
    bool steady = false;    ///< No worker's speed seems to change.
    bool possible = false;  ///< The plan before the change could be put in force.
    double steps_left = 0;
    double gain_over_cost = 0;  ///< DriftPolicy::gain_over_cost.
  };
  /// The plan to go back to, if the steps are known well enough and take longer than before the
  /// change; nullopt if nothing can be decided yet, or the change stays. Called while no transition
  /// is in progress: a change that was to be taken back and is still in force then is kept.
  std::optional<FormerPlan> Judge(const StepTimes& times, const Circumstances& now, Outbox& out);
  /// True if a change from the same members with the same candidates was taken back, and no
  /// candidate's slowdown differs from that of then by more than the factor `threshold`.
  bool WasTakenBack(const Change& change, double threshold) const;

 private:
  int64_t generation_ = 0;
  std::optional<Promise> promise_;     ///< The promise that is neither kept nor broken yet.
  std::optional<Outcome> going_back_;  ///< The change that is being taken back.
  std::vector<Change> taken_back_;
};

}  // namespace heddle::elastic
