/// \file
/// Who is to leave leaves, whatever happens, and who is to stay after all stays: what operators
/// were told, checked against what becomes of the workers.
#pragma once

#include <map>
#include <set>
#include <string>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Thread: one caller.
class LeaveChecks {
 public:
  explicit LeaveChecks(Cluster& cluster) : cluster_(cluster) {}

  /// An operator asks: until the answer either may be so. Workers by key.
  void NoteAsked(const std::string& key, bool to_leave);
  /// An operator was told that the worker leaves: it does, or is told otherwise.
  void NoteDrain(const std::string& key);
  /// An operator was told that the worker stays: it is not let go before it is asked again.
  void NoteStay(const std::string& key);
  /// It is told to end.
  void NoteNotice(const SimWorker& worker) { stays_.erase(worker.key); }
  /// One of them was let go, or is not to leave for now.
  void Take(const LogEvent& event);
  /// It begins anew: not who was to leave.
  void CheckBeginsAnew(const SimWorker& worker);
  void CheckRestored(const DurableState& restored);
  /// A coordinator begins with an empty store: no promise of its predecessors binds it.
  void BeginEra();
  /// At the end of the job.
  void CheckDrained();

 private:
  Cluster& cluster_;
  std::map<std::string, Time> drained_;  ///< By key: when that was promised.
  std::set<std::string> stays_;          ///< Keys.
};

}  // namespace heddle::elastic
