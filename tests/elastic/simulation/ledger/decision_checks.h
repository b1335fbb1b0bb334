/// \file
/// What the coordinator writes down of each change of generation: why, from what, and what else
/// there was.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "elastic/control/log_event.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class DecisionChecks {
 public:
  explicit DecisionChecks(Cluster& cluster) : cluster_(cluster) {}

  void Take(const LogEvent& event);
  /// The state that the recovery under way goes on from.
  void NoteSource(const std::string& chosen) { source_ = chosen; }
  /// One decision led to the generation, and is durable.
  void CheckBegun(int64_t generation);
  void MakeDurable() { durable_ = logged_; }
  void ForgetWhatIsNotDurable() { logged_ = durable_; }
  /// Numbers above this one are given anew.
  void BeginEra(int64_t generation);

 private:
  bool Follows(int64_t generation) const;

  Cluster& cluster_;
  std::map<int64_t, int> logged_;   ///< By generation, how often.
  std::map<int64_t, int> durable_;  ///< Those that outlive the coordinator's machine.
  std::string source_;
};

}  // namespace heddle::elastic
