/// \file
/// Bits that flipped in workers' memory, and which of them the coordinator could know: once it has
/// found one, no worker goes on from a state that the flip altered.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/control/actions.h"
#include "tests/elastic/simulation/world/worker.h"

namespace heddle::elastic {

class Cluster;

/// The alterations of workers' state. Thread: one caller.
class Alterations {
 public:
  explicit Alterations(Cluster& cluster) : cluster_(cluster) {}

  /// Flips a bit of one of the worker's parameters. Returns the parameter's index; -1: the worker
  /// holds none.
  int32_t Alter(SimWorker& worker, Random& random);
  /// The coordinator logged that members differ: alterations of the parameters that the event
  /// names, after the last step on which all agreed, are known once the event is stored.
  void TakeDisagreement(const LogEvent& event);
  /// The coordinator stored its state: the disagreements taken until now are known.
  void NoteStored();
  /// Whether the coordinator knows that a parameter's state is altered.
  bool IsKnown(const SimParameter& value) const { return known_.count(value.altered) > 0; }
  /// The coordinator's process ended: forgets the disagreements that it had not stored.
  void ForgetUnstored() { unstored_.clear(); }
  /// The coordinator's store was lost: forgets all known alterations.
  void BeginEra() {
    unstored_.clear();
    known_.clear();
  }
  /// Checks a parameter that a worker staged as the state that its generation begins with.
  void CheckStaged(const SimWorker& worker, int64_t generation, int32_t parameter);
  /// Checks that all members of the generation that begins have the same state.
  void CheckBegun(const wire::Prepare& prepare);

 private:
  Cluster& cluster_;
  int64_t newest_ = 0;
  std::map<int64_t, int64_t> steps_;  ///< The steps of the alterations, by number.
  std::set<int64_t> unstored_;
  std::set<int64_t> known_;
};

}  // namespace heddle::elastic
