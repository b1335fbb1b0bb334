/// \file
/// The simulated planner beside each coordinator: one thread, which takes the newest request when
/// it is free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "elastic/control/planning.h"

namespace heddle::elastic {

class Cluster;
class CoordinatorProcess;

/// A profile with which no plan can be found: one candidate with it is enough.
inline constexpr const char* kAbsurdProfile = "absurd";

/// The planners of all coordinators' processes. Thread: one caller.
class SimPlanner {
 public:
  explicit SimPlanner(Cluster& cluster) : cluster_(cluster) {}

  /// Requests a plan; the outcome comes to `asker` as the event Planned.
  void Find(CoordinatorProcess& asker, const PlanRequest& request);

  // Faults.
  void RefuseUntil(Time time) { refuses_until_ = time; }
  /// Delays the outcomes of all requests made before `time` until then.
  void DelayUntil(Time time) { delays_until_ = time; }

 private:
  struct Queue {
    std::optional<PlanRequest> asked;  ///< The newest request.
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
