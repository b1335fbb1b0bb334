/// \file
/// Makes snapshots of a generation's state in workers' memory, beside training: each worker keeps
/// its own shard and sends it to its holders. All workers take the same snapshots. No snapshot
/// begins before the last one has ended on all workers, which the vote of each step shows
/// (engine/runtime/vote.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "checkpoint/save/memory_shard.h"
#include "checkpoint/save/writer.h"
#include "comm/communicator.h"
#include "elastic/worker/replicas/replica_store.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// A rank with parameters, which owns a shard of every snapshot.
struct ReplicaOwner {
  int rank = -1;
  std::vector<checkpoint::StoredBox> boxes;  ///< The boxes of its shard.
  std::vector<int> holders;                  ///< Other ranks that get a copy of the shard.
};

/// The metrics of a writer whose saves go into a Replicator's memory.
checkpoint::WriterStats ReplicaFigures(metrics::Registry& registry);

struct ReplicatorOptions {
  int64_t generation = 0;
  std::vector<ReplicaOwner> owners;
  bool compress = true;
  Duration timeout = std::chrono::seconds(60);  ///< Bound of one snapshot.
  // Group, writer, store and registry outlive the replicator.
  comm::Communicator* group = nullptr;   ///< Connects owners and holders.
  checkpoint::Writer* writer = nullptr;  ///< Used by the replicator alone.
  ReplicaStore* store = nullptr;
  metrics::Registry* registry = nullptr;
  std::function<void()> changed;  ///< Called when the store's shards have changed. Thread: any.
};

/// One worker's part in the snapshots of a generation. Thread: one caller at a time.
class Replicator {
 public:
  explicit Replicator(ReplicatorOptions options);
  /// Gives up a snapshot that is being made, and then aborts the group, since other workers wait
  /// for this one's shard.
  ~Replicator();
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  /// Starts the snapshot of `step`. `boxes`: those of this worker's shard, in any order; they are
  /// copied as in a deferred checkpoint::Writer::Snapshot. `whole`: no worker has voted that its
  /// part of the last snapshot failed. Precondition: not exchanging().
  void Take(int64_t step, bool whole, std::span<const checkpoint::BoxView> boxes);
  /// True while this worker still makes the newest snapshot.
  bool exchanging() const HEDDLE_EXCLUDES(mutex_);
  /// True if this worker's part in the last ended snapshot failed.
  bool failed() const HEDDLE_EXCLUDES(mutex_);

 private:
  using Part = std::shared_ptr<checkpoint::MemoryShard>;
  struct Outgoing;
  struct Incoming;

  void Run() HEDDLE_EXCLUDES(mutex_);
  Status Exchange(int64_t step);
  std::optional<Status> OwnStatusBy(Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  Status WaitForOwnPart(Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  void SetOwnPart(const Status& status) HEDDLE_EXCLUDES(mutex_);
  void Send(int64_t step, const Status& own, Outgoing& out);
  std::vector<Incoming> PostHeaders(int64_t step);
  Status PostPart(int64_t step, Deadline deadline, Incoming& in);
  Status Receive(int64_t step, Deadline deadline, Incoming& in);
  void Finish(int64_t step, const Status& status) HEDDLE_EXCLUDES(mutex_);

  const ReplicatorOptions options_;
  const ReplicaOwner* own_ = nullptr;  ///< Null: this worker owns no shard and only keeps others'.
  metrics::Gauge& newest_step_;
  metrics::Histogram& seconds_;
  metrics::Counter& failures_;
  std::optional<int64_t> newest_;  ///< Step of the last Take. Used by the caller only.
  bool logged_ = false;            ///< A failure was logged. Used by thread_ only.
  // Used by thread_ while exchanging, otherwise by the caller.
  int64_t part_bytes_ = 0;  ///< Expected bytes of the own shard.
  Part part_;               ///< The own shard.

  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool failed_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> step_ HEDDLE_GUARDED_BY(mutex_);  ///< Step of the snapshot being made.
  Time begun_ HEDDLE_GUARDED_BY(mutex_);
  std::optional<Status> own_status_ HEDDLE_GUARDED_BY(mutex_);  ///< Set once the own shard is made.
  Thread thread_;
};

}  // namespace heddle::elastic
