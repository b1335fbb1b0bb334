/// \file
/// Checks that workers that are to leave do so, whatever happens, and that workers that are to stay
/// after all stay: the answers to operators, against what the workers do.
#pragma once

#include <map>
#include <set>
#include <string>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// Checks of the answers to operators. Workers are named by key. Thread: one caller.
class LeaveChecks {
 public:
  explicit LeaveChecks(Cluster& cluster) : cluster_(cluster) {}

  /// An operator asks that a worker leave (`to_leave`) or stay: until the answer it may do either.
  void NoteAsked(const std::string& key, bool to_leave);
  /// An operator was told that the worker leaves: from now on it has to, unless it is told to stay.
  void NoteDrain(const std::string& key);
  /// An operator was told that the worker stays: it must not be let go before the next request.
  void NoteStay(const std::string& key);
  /// The worker is told to end by its machine: no answer keeps it any more.
  void NoteNotice(const SimWorker& worker) { stays_.erase(worker.key); }
  /// The job is asked to give up all its workers, those that were to stay, too.
  void NoteSuspension() { stays_.clear(); }
  /// Checks a log event that says that a worker was let go, or is not to leave for now.
  void Take(const LogEvent& event);
  /// Checks that a worker that begins anew was not to leave.
  void CheckBeginsAnew(const SimWorker& worker);
  void CheckRestored(const DurableState& restored);
  /// A coordinator begins with an empty store: no promise of its predecessors binds it.
  void BeginEra();
  /// Checks at the job's end that all workers that were to leave did.
  void CheckDrained();

 private:
  Cluster& cluster_;
  std::map<std::string, Time> drained_;  ///< When operators were told, by key.
  std::set<std::string> stays_;          ///< Keys of workers that are to stay.
};

}  // namespace heddle::elastic
