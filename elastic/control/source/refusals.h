/// \file
/// Whose copies of a state are not to be gone on from: they did not fit their hashes when another
/// worker received them, or differ from what others hold. Who finds that of two holders in one
/// recovery is itself at fault: its memory, or its way to the others.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/control/durable.h"

namespace heddle::elastic {

/// Thread: one caller at a time. A copy is an independent machine.
class Refusals {
 public:
  void Add(const RefusedState& refused);
  /// `step`: of the snapshot, or RefusedState::kTensors.
  bool Has(const std::string& holder, int64_t generation, int64_t step) const;
  /// Members of the generation were at odds over what they train on.
  bool Disagreed(int64_t generation) const;
  /// Other workers whose copies it has refused in this recovery.
  std::set<std::string> HoldersRefusedBy(const std::string& receiver) const;
  /// What it found is void.
  void Forgive(const std::string& receiver);

  /// Another generation is in force: it has its own tensors, and a receiver is counted anew.
  /// `snapshots`: what may still be offered.
  void BeginGeneration(const std::map<int64_t, SnapshotSource>& snapshots);
  void Restore(const DurableState& durable) { refused_ = durable.refused; }
  void Store(DurableState& durable) const { durable.refused = refused_; }

 private:
  std::vector<RefusedState> refused_;
};

}  // namespace heddle::elastic
