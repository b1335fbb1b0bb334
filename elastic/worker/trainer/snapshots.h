/// \file
/// One worker's part in snapshots in memory: the held shards, and when a snapshot is taken.
#pragma once

#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "elastic/worker/replicas/replica_store.h"
#include "elastic/worker/replicas/replicator.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"

namespace heddle::elastic {

/// The snapshots of a job on one worker. Thread: one caller at a time.
class Snapshots {
 public:
  explicit Snapshots(JobContext& context) : context_(context), store_(*context.options.registry) {}

  const ReplicaStore& store() const { return store_; }
  /// Makes the replicator of a generation whose group is connected; null if no snapshots are kept.
  /// `staging_bytes`: bytes of a copy of this worker's share of the state. Errors: kInternal (the
  /// holders in `prepared` do not fit the plan).
  Result<std::unique_ptr<Replicator>> MakeReplicator(const Generation& generation,
                                                     const wire::Prepare& prepared,
                                                     int64_t staging_bytes);
  /// Begins a snapshot after the last applied step if one is due. All workers decide alike.
  void TakeIfDue(Generation& generation);
  /// Takes note of the generation that is held now: drops snapshots of later steps, and keeps the
  /// one that its state was moved from.
  void Adopt(const Generation& generation);

 private:
  void Tell() HEDDLE_EXCLUDES(mutex_);

  JobContext& context_;
  ReplicaStore store_;
  Mutex mutex_;  ///< Keeps the posted lists of held shards in order.
};

}  // namespace heddle::elastic
