/// \file
/// Makes snapshots of a generation's state in workers' memory: each worker's part stays with it and
/// goes to its holders, beside training. All workers take the same snapshots, and none begins one
/// before the one before has ended everywhere: the vote of each step says so
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
#include "checkpoint/save/memory_part.h"
#include "checkpoint/save/writer.h"
#include "comm/communicator.h"
#include "elastic/worker/replicas/replica_store.h"
#include "metrics/registry.h"

namespace heddle::elastic {

/// A rank with parameters: it has a part in every snapshot.
struct ReplicaOwner {
  int rank = -1;
  std::vector<checkpoint::StoredBox> boxes;  ///< Of its part.
  std::vector<int> holders;                  ///< Other ranks that hold it, too.
};

/// Of a writer whose saves go into a Replicator's memory.
checkpoint::WriterFigures ReplicaFigures(metrics::Registry& registry);

struct ReplicatorOptions {
  int64_t generation = 0;
  std::vector<ReplicaOwner> owners;
  bool compress = true;
  Duration timeout = std::chrono::seconds(60);  ///< Of one snapshot.
  comm::Communicator* group = nullptr;          ///< Connects owners and holders.
  checkpoint::Writer* writer = nullptr;         ///< These outlive the replicator; for it alone.
  ReplicaStore* store = nullptr;
  metrics::Registry* registry = nullptr;
  std::function<void()> changed;  ///< The store holds other parts now. Called from any thread.
};

/// Thread: one caller at a time.
class Replicator {
 public:
  explicit Replicator(ReplicatorOptions options);
  /// Gives up what is in flight; the group is aborted then, because others wait for it.
  ~Replicator();
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  /// Starts the snapshot of `step`: the boxes, which are those of this worker's part in any order,
  /// are copied as in a deferred checkpoint::Writer::Snapshot. `whole`: no worker has said in the
  /// vote that it lacks something of the snapshot before. Precondition: not exchanging().
  void Take(int64_t step, bool whole, std::span<const checkpoint::BoxView> boxes);
  /// Whether the newest snapshot is still being made here.
  bool exchanging() const HEDDLE_EXCLUDES(mutex_);
  /// Whether this worker lacks something of the newest snapshot that has ended.
  bool failed() const HEDDLE_EXCLUDES(mutex_);

 private:
  using Part = std::shared_ptr<checkpoint::MemoryPart>;
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
  const ReplicaOwner* own_ = nullptr;  ///< Null: this worker has no part, it only keeps others'.
  metrics::Gauge& newest_step_;
  metrics::Histogram& seconds_;
  metrics::Counter& failures_;
  std::optional<int64_t> newest_;  ///< The caller's only.
  bool logged_ = false;            ///< A failure was logged. The thread's only.
  int64_t part_bytes_ = 0;         ///< Expected of the own part. The caller's, or the thread's …
  Part part_;                      ///< … while exchanging, like this.

  mutable Mutex mutex_;
  CondVar changed_;
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool failed_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> step_ HEDDLE_GUARDED_BY(mutex_);  ///< Of the snapshot being made.
  Time begun_ HEDDLE_GUARDED_BY(mutex_);
  std::optional<Status> own_status_ HEDDLE_GUARDED_BY(mutex_);  ///< The own part is done, or not.
  Thread thread_;
};

}  // namespace heddle::elastic
