/// \file
/// Bits that flipped in workers' memory, and what the coordinator could know of them: once it has
/// found one, nobody goes on from what came of it.
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

/// Thread: one caller.
class Alterations {
 public:
  explicit Alterations(Cluster& cluster) : cluster_(cluster) {}

  /// A bit of one of the worker's parameters flips. Returns which one's; -1: it holds none.
  int32_t Alter(SimWorker& worker, Random& random);
  /// The coordinator says that members differ: what they hold of these parameters is known to be
  /// altered, where that happened after the step that all agreed on. It counts once it is stored.
  void TakeDisagreement(const LogEvent& event);
  void NoteStored();
  /// What the coordinator knows to be altered.
  bool IsKnown(const SimParameter& value) const { return known_.count(value.altered) > 0; }
  /// The coordinator's process has ended.
  void ForgetUnstored() { unstored_.clear(); }
  /// Its store was lost, and what it had found with it.
  void BeginEra() {
    unstored_.clear();
    known_.clear();
  }
  /// A worker takes this for the state that its generation begins with.
  void CheckStaged(const SimWorker& worker, int64_t generation, int32_t parameter);
  /// All members of the generation that begins have one state.
  void CheckBegun(const wire::Prepare& prepare);

 private:
  Cluster& cluster_;
  int64_t newest_ = 0;
  std::map<int64_t, int64_t> steps_;  ///< After which each happened.
  std::set<int64_t> unstored_;
  std::set<int64_t> known_;
};

}  // namespace heddle::elastic
