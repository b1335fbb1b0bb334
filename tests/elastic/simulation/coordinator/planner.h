/// \file
/// The planner beside each coordinator: one thread, which takes the newest question when it is
/// free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "elastic/control/planning.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// With such a profile of one candidate there is no plan.
inline constexpr const char* kAbsurdProfile = "absurd";

/// Thread: one caller.
class SimPlanner {
 public:
  explicit SimPlanner(Cluster& cluster) : cluster_(cluster) {}

  /// Answered by Planned.
  void Find(CoordinatorProcess& asker, const PlanRequest& request);

  // Faults.
  void RefuseUntil(Time time) { refuses_until_ = time; }
  /// What is asked until then is answered then.
  void DelayUntil(Time time) { delays_until_ = time; }

 private:
  struct Queue {
    std::optional<PlanRequest> asked;  ///< The newest.
    bool busy = false;
  };

  void Begin(CoordinatorProcess& asker);
  Time DrawEnd();
  PlanOutcome PlanFor(const PlanRequest& request);
  void LeaveSomeOut(std::vector<std::string>& names);

  Cluster& cluster_;
  std::map<int64_t, Queue> queues_;  ///< By the coordinator's life.
  bool took_long_ = false;
  Time refuses_until_;
  Time delays_until_;
};

}  // namespace heddle::elastic
