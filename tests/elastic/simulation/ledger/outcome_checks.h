/// \file
/// Checks of the changes of plan in priced histories (SimOptions::priced), where steps' durations
/// follow from plans: no change is made twice for the same evidence, a change that made steps
/// slower is taken back once, and without a disturbance the plan stays.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "elastic/control/log_event.h"
#include "tests/elastic/simulation/history/fault.h"

namespace heddle::elastic {

class Cluster;

/// Checks of the changes of plan. Thread: one caller.
class OutcomeChecks {
 public:
  explicit OutcomeChecks(Cluster& cluster) : cluster_(cluster) {}

  /// Checks an event that the coordinator logs.
  void Take(const LogEvent& event);
  /// A fault was injected.
  void NoteFault(FaultKind kind);

 private:
  /// A change of plan for which the planner had a choice.
  struct Change {
    std::string cause;
    int64_t follows = 0;
    Time at;
    int faults = 0;  ///< The number of faults before the change.
    bool judged = false;
    bool taken_back = false;
  };

  void TakeStep(const LogEvent& event);
  void TakeDecision(const LogEvent& event);
  void CheckTakenBack(int64_t generation, int64_t judged);
  void CheckNew(int64_t generation);
  void CheckScale(const LogEvent& event, const Change& change);
  void TakeOutcome(const LogEvent& event);
  void CheckVerdict(const LogEvent& event, int64_t generation, const Change& change);
  void CheckDrift(const LogEvent& event);
  /// Whether the plans of two generations have the same members, candidates and known slowdowns.
  bool AreSame(int64_t generation, int64_t other) const;
  /// Whether the last steps of a generation before `until` were run by workers as they are now.
  bool IsMeasured(int64_t generation, Time until) const;

  Cluster& cluster_;
  std::map<int64_t, Change> changes_;  ///< By generation.
  /// The generation that took a change back whose outcome is still to be logged; nullopt: none.
  std::optional<int64_t> taken_back_by_;
  Time disturbed_at_;  ///< The last fault that changes the durations of steps.
  int64_t step_ = 0;   ///< The newest step.
  int64_t last_fault_step_ = 0;
  int faults_ = 0;
};

}  // namespace heddle::elastic
