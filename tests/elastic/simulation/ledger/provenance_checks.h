/// \file
/// Checks of the guarantee that the coordinator shows, saves and keeps, against what each step that
/// counts was computed on.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "elastic/control/actions.h"
#include "elastic/protocol/protocol.pb.h"

namespace heddle::elastic {

class Cluster;

/// Checks of guarantees. Thread: one caller.
class ProvenanceChecks {
 public:
  explicit ProvenanceChecks(Cluster& cluster) : cluster_(cluster) {}

  /// A generation begins after `step`; checks that it keeps a guarantee that the job demands.
  void NoteGo(const wire::Prepare& prepare, int64_t step);
  /// Checks the guarantee that the coordinator shows.
  void CheckStatus(const wire::JobStatus& status);
  /// Checks the guarantee that a checkpoint is saved with.
  void CheckCommit(const CommitCheckpoint& commit);
  /// A coordinator begins with an empty store, from the newest checkpoint if there is one.
  void BeginEra();

 private:
  struct Begun {
    int64_t step = 0;
    std::set<int> kinds;  ///< SimWorker::kind of its members.
  };

  /// The kinds of all workers that computed steps up to `step`, as the history counts that ends
  /// with `generation`.
  std::set<int> KindsUntil(int64_t generation, int64_t step) const;

  Cluster& cluster_;
  std::map<int64_t, Begun> begun_;  ///< The generations of this era, by number.
  std::set<int> inherited_;         ///< The kinds of the checkpoint from which the era goes on.
};

}  // namespace heddle::elastic
