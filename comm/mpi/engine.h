/// \file
/// The thread that makes all MPI calls. It serves the pipes of both traffic classes of each group,
/// the urgent class first.
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

/// The pipes of one traffic class (comm/transport/traffic_class.h) of a group, one for each other
/// rank. Thread: any.
class MpiPipes {
 public:
  virtual ~MpiPipes() = default;
  virtual MpiPipe& pipe(int peer) = 0;
  /// Makes the MPI thread handle the pipe to `peer`, after it was written, read or closed.
  virtual void Notify(int peer) = 0;
};

/// The MPI thread and its interface. Thread: any.
class MpiEngine : public std::enable_shared_from_this<MpiEngine> {
 public:
  struct Opened {
    std::shared_ptr<MpiPipes> traffic_class;
    std::vector<Bytes> records;  ///< The records of all ranks, in rank order.
  };

  /// Starts MPI and its thread; see MpiWorld::Start. Further errors: kInvalidArgument (a silence
  /// timeout below 100 ms).
  static Result<std::shared_ptr<MpiEngine>> Start(Duration silence_timeout, Deadline deadline);
  ~MpiEngine();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Opens a traffic class with an MPI communicator of its own, and exchanges `record`, which has
  /// the same size at all ranks. Every rank calls it. Errors: those of MpiWorld::Connect.
  Result<Opened> Open(const Bytes& record, Deadline deadline);
  /// Ends MPI; see MpiWorld::Finish. Idempotent.
  Status Finish(Deadline deadline);

 private:
  class Pipes;
  /// A function that the MPI thread calls until it returns true or an error. It owns everything
  /// that it refers to.
  using Poll = std::function<Result<bool>()>;
  struct Task {
    Poll poll;
    bool ended = false;
    Status status;
  };

  explicit MpiEngine(Duration silence_timeout) : silence_timeout_(silence_timeout) {}
  /// Has the MPI thread call `poll` until it ends, and returns its status. Errors also:
  /// kDeadlineExceeded, which names `what`; `poll` is then given up and no group can be formed any
  /// more.
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
