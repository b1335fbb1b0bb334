/// \file
/// Whether changes of plan follow from what steps take, where steps follow from plans
/// (SimOptions::priced): no change is made twice for the same evidence, one that made steps slower
/// is taken back once, and without a disturbance the plan stays.
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

/// Thread: one caller.
class OutcomeChecks {
 public:
  explicit OutcomeChecks(Cluster& cluster) : cluster_(cluster) {}

  void Take(const LogEvent& event);
  void NoteFault(FaultKind kind);

 private:
  /// A change for which there was a choice.
  struct Change {
    std::string cause;
    int64_t follows = 0;
    Time at;
    int faults = 0;  ///< So many were before it.
    bool judged = false;
    bool taken_back = false;
  };

  void TakeDecision(const LogEvent& event);
  void CheckTakenBack(int64_t generation, int64_t judged);
  void CheckNew(int64_t generation);
  void CheckScale(const LogEvent& event, const Change& change);
  void TakeOutcome(const LogEvent& event);
  void CheckVerdict(const LogEvent& event, int64_t generation, const Change& change);
  void CheckDrift(const LogEvent& event);
  /// Whether both follow a plan of the same members, with the same candidates as they were known.
  bool AreSame(int64_t generation, int64_t other) const;
  /// Whether the last steps of a generation until then were made by workers as they are now.
  bool IsMeasured(int64_t generation, Time until) const;

  Cluster& cluster_;
  std::map<int64_t, Change> changes_;     ///< By generation.
  std::optional<int64_t> taken_back_by_;  ///< The generation of which that is still to be said.
  Time disturbed_at_;  ///< By a fault that changes what steps take, the last time.
  int64_t step_ = 0;   ///< The newest.
  int64_t last_fault_step_ = 0;
  int faults_ = 0;
};

}  // namespace heddle::elastic
