/// \file
/// What a change of plan promised, and what came of it. Once the steps of a change for which there
/// was a choice are known well enough they are compared with those before it. A change that made
/// them slower is taken back, once, and the same one is not tried again.
///
/// Well enough: two standard errors of their median are 2 % of it or less. So how many steps that
/// takes follows from their noise; they are 8 at least and 50 at most. While a worker's speed seems
/// to change the newest of up to 100 are waited for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/control/outbox.h"
#include "elastic/control/steps/step_times.h"

namespace heddle::elastic {

/// What a plan was looked for with, while which one was in force.
struct Change {
  struct Party {
    uint64_t profile = 0;  ///< Its hash.
    double slowdown = 1;
  };
  std::vector<std::string> members;         ///< Of the plan in force, by rank.
  std::map<std::string, Party> candidates;  ///< By name.
};

/// A plan that was in force.
struct FormerPlan {
  std::string plan_json;
  std::vector<std::string> members;
  double step_seconds = 0;  ///< As measured.
};

struct Promise {
  Change change;
  std::string plan_json;            ///< Of the plan before.
  std::optional<StepLevel> before;  ///< Of its steps; none: too few were measured.
  double step_seconds = 0;          ///< Promised.
  double cost_seconds = 0;          ///< Of a change, as predicted.
};

/// What came of a change.
struct Outcome {
  int64_t generation = 0;  ///< That the change began.
  double promised_seconds = 0;
  double realised_seconds = 0;
  std::optional<double> before_seconds;  ///< None: too few steps were measured.
};

/// Thread: one caller at a time. A copy is an independent machine.
class Outcomes {
 public:
  /// A generation is in force; what came of the one before is not asked any more. No promise: there
  /// was no choice. `goes_back`: its plan is the one that Judge found.
  void Begin(int64_t generation, std::optional<Promise> promise, bool goes_back, Outbox& out);
  /// Workers or links are not what they were: a comparison would say nothing of the plan.
  void Drop() { promise_.reset(); }
  const std::optional<Promise>& promise() const { return promise_; }

  /// What is known beside the steps.
  struct Circumstances {
    bool steady = false;    ///< No worker's speed seems to change.
    bool possible = false;  ///< The plan before could be put in force.
    double steps_left = 0;
    double gain_over_cost = 0;  ///< Seconds saved over those spent that are worth a change.
  };
  /// The plan to go back to, where the steps are known and took longer than before; none: there is
  /// nothing to be decided yet, or the change stays. To be called while no change is under way: one
  /// that was to be taken back, and is still in force then, is kept.
  std::optional<FormerPlan> Judge(const StepTimes& times, const Circumstances& now, Outbox& out);
  /// Whether a change with the same candidates, none of which is slower or faster than then by
  /// `threshold`, was taken back while the same members trained.
  bool WasTakenBack(const Change& change, double threshold) const;

 private:
  int64_t generation_ = 0;
  std::optional<Promise> promise_;     ///< Not kept yet, nor broken.
  std::optional<Outcome> going_back_;  ///< The plan before is looked for.
  std::vector<Change> taken_back_;
};

}  // namespace heddle::elastic
