/// \file
/// Snapshots in workers' memory, as one worker takes part in them: what is held here, and when one
/// is taken.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/worker/replicas/replica_store.h"
#include "elastic/worker/replicas/replicator.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"

namespace heddle::elastic {

/// Thread: one caller at a time.
class Snapshots {
 public:
  explicit Snapshots(JobContext& context) : context_(context), store_(*context.options.registry) {}

  const ReplicaStore& store() const { return store_; }
  /// For the generation, which has its group; null: no snapshots are kept. `staging_bytes`: what a
  /// copy of this worker's share takes.
  Result<std::unique_ptr<Replicator>> MakeReplicator(const Generation& generation,
                                                     const wire::Prepare& prepared,
                                                     int64_t staging_bytes);
  /// Begins the snapshot of the step applied last, where one is due: all workers decide alike.
  void TakeIfDue(Generation& generation);
  /// The generation is the one held now: what it makes void is dropped, what it came from is kept.
  void Adopt(const Generation& generation);

 private:
  void Tell() HEDDLE_EXCLUDES(mutex_);

  JobContext& context_;
  ReplicaStore store_;
  Mutex mutex_;  ///< So that lists of what is held are told in their order.
};

}  // namespace heddle::elastic
