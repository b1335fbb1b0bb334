/// \file
/// Checks of the decisions that the coordinator logs for each change of generation: its cause, the
/// generation and state that it follows from, and the alternatives.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elastic/control/log_event.h"

namespace heddle::elastic {

class Cluster;

/// Checks of the logged decisions. Thread: one caller.
class DecisionChecks {
 public:
  explicit DecisionChecks(Cluster& cluster) : cluster_(cluster) {}

  /// Checks a logged decision.
  void Take(const LogEvent& event);
  /// Notes the state that the recovery under way goes on from.
  void NoteSource(const std::string& chosen) { source_ = chosen; }
  /// Checks that exactly one decision led to the generation, and that it is durable.
  void CheckBegun(int64_t generation);
  void MakeDurable() { durable_ = logged_; }
  void ForgetWhatIsNotDurable() { logged_ = durable_; }
  /// The coordinator's store was lost: generations above this number are given out anew.
  void BeginEra(int64_t generation);

 private:
  bool Follows(int64_t generation) const;

  Cluster& cluster_;
  std::map<int64_t, int> logged_;   ///< The number of logged decisions, by generation.
  std::map<int64_t, int> durable_;  ///< The number of durable decisions, by generation.
  std::string source_;
};

}  // namespace heddle::elastic
