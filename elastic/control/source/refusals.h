/// \file
/// Copies of the state that no generation may continue from: they did not match their hashes when
/// another worker received them, or they differ from the replicas of other workers. A receiver that
/// refuses the copies of two holders in one recovery is itself at fault, by its memory or its
/// network.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/control/durable.h"

namespace heddle::elastic {

/// The refused copies of the state. Thread: one caller at a time. A copy is an independent machine.
class Refusals {
 public:
  void Add(const RefusedState& refused);
  /// True if the holder's copy was refused. `step`: the snapshot's, or RefusedState::kTensors.
  bool Has(const std::string& holder, int64_t generation, int64_t step) const;
  /// True if members of the generation disagreed about the tensors that they train on.
  bool Disagreed(int64_t generation) const;
  /// The other workers whose copies `receiver` has refused in this recovery.
  std::set<std::string> HoldersRefusedBy(const std::string& receiver) const;
  /// Withdraws the refusals that `receiver` made of other workers' copies.
  void Forgive(const std::string& receiver);

  /// A new generation is in force: drops refusals of tensors and of snapshots that are not in
  /// `snapshots`, and forgets who made the others.
  void BeginGeneration(const std::map<int64_t, SnapshotSource>& snapshots);
  void Restore(const DurableState& durable) { refused_ = durable.refused; }
  void Store(DurableState& durable) const { durable.refused = refused_; }

 private:
  std::vector<RefusedState> refused_;
};

}  // namespace heddle::elastic
