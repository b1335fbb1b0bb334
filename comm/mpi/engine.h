/// \file
/// The thread that makes all MPI calls, and what it serves: two traffic classes of pipes for each
/// group, the urgent one first.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "comm/mpi/pipe.h"

namespace heddle::comm {

class MpiEngine;

/// The pipes of one traffic class (comm/transport/traffic_class.h) of a group, by rank; none for
/// the own rank. Thread: any.
class MpiPipes {
 public:
  virtual ~MpiPipes() = default;
  virtual MpiPipe& pipe(int peer) = 0;
  /// Something was written, read or closed on that pipe: the MPI thread looks at it.
  virtual void Notify(int peer) = 0;
};

/// Thread: any.
class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  struct Opened {
    std::shared_ptr<MpiPipes> traffic_class;
    std::vector<Bytes> records;  ///< Every rank's, in rank order.
  };

  /// Contract: MpiWorld::Start.
  static Result<std::shared_ptr<MpiEngine>> Start(Duration silence_timeout, Deadline deadline);
  ~MpiEngine();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// A traffic class with an MPI communicator of its own, and an exchange of `record` (the same
  /// size everywhere). Every rank calls it. Errors: contract of MpiWorld::Connect.
  Result<Opened> Open(const Bytes& record, Deadline deadline);
  /// Contract: MpiWorld::Finish. Idempotent.
  Status Finish(Deadline deadline);

 private:
  class Pipes;
  /// Called by the MPI thread until it returns true; what it refers to it owns.
  using Poll = std::function<Result<bool>()>;
  struct Task {
    Poll poll;
    bool ended = false;
    Status status;
  };

  explicit MpiEngine(Duration silence_timeout) : silence_timeout_(silence_timeout) {}
  /// Has the MPI thread do `poll` to its end. At the deadline it is left there: kDeadlineExceeded.
  Status Do(Poll poll, const std::string& what, Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  Result<std::shared_ptr<Pipes>> MakePipes();
  Status EndTogether(Deadline deadline);

  // The MPI thread.
  void Run();
  Status Initialise();
  bool RunTasks() HEDDLE_EXCLUDES(mutex_);
  bool TurnClasses();
  void Rest(Duration rest) HEDDLE_EXCLUDES(mutex_);

  void Wake() HEDDLE_EXCLUDES(mutex_);
  void Poison(const Status& reason) HEDDLE_EXCLUDES(mutex_);

  const Duration silence_timeout_;
  std::unique_ptr<Thread> thread_;
  int rank_ = 0;  ///< Constant once Initialise has ended.
  int size_ = 0;

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Task>> tasks_ HEDDLE_GUARDED_BY(mutex_);
  bool awake_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool initialised_ HEDDLE_GUARDED_BY(mutex_) = false;
  Status start_status_ HEDDLE_GUARDED_BY(mutex_);
  Status poison_ HEDDLE_GUARDED_BY(mutex_);
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool finalize_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool exited_ HEDDLE_GUARDED_BY(mutex_) = false;

  std::vector<std::shared_ptr<Pipes>> pipes_of_classes_;  ///< MPI thread only.
};

}  // namespace heddle::comm
