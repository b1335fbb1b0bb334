/// \file
/// What is queued on a fake device, and the thread that does it: in order within a queue, in any
/// order between queues, and as late as it may be. What nobody waits for stays undone, save what is
/// done by chance.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/runtime/device/device.h"
#include "tests/support/device/fake_memory.h"
#include "tests/support/device/fake_options.h"

namespace heddle::runtime::testing {

enum class Queue : uint8_t { kCompute, kDown, kUp, kPeers };
inline constexpr size_t kQueues = 4;

struct Operation {
  Queue queue = Queue::kCompute;
  bool counted = false;
  std::vector<std::shared_ptr<Operation>> after = {};
  std::function<void()> run = {};
  bool ended = false;
};
using OperationPtr = std::shared_ptr<Operation>;

/// Thread: any.
class FakeQueues {
 public:
  /// `count` is told of the time of each counted operation when it has ended.
  FakeQueues(const FakeOptions& options,
             std::shared_ptr<FakeMemory> memory,
             std::function<void(Duration)> count);
  /// What has not run by now never does.
  ~FakeQueues();
  FakeQueues(const FakeQueues&) = delete;
  FakeQueues& operator=(const FakeQueues&) = delete;

  /// A copy down comes after all compute that was put before it, and whatever it is after `after`;
  /// null: after nothing else.
  OperationPtr Put(Queue queue,
                   bool counted,
                   std::function<void()> run,
                   OperationPtr after = nullptr) HEDDLE_EXCLUDES(mutex_);
  /// The compute that is put next comes after `before`.
  void Await(OperationPtr before) HEDDLE_EXCLUDES(mutex_);
  /// Null: none was ever put.
  OperationPtr Newest(Queue queue) const HEDDLE_EXCLUDES(mutex_);
  bool Ended(const OperationPtr& operation) HEDDLE_EXCLUDES(mutex_);
  /// Errors: kDeadlineExceeded, those of all operations so far.
  Status Wait(const OperationPtr& operation, Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  Status Drain(Deadline deadline) HEDDLE_EXCLUDES(mutex_);
  /// Nothing runs any more.
  void Fail(Status status) HEDDLE_EXCLUDES(mutex_);

 private:
  bool Has(Fault fault) const { return options_.fault == fault; }
  void AddDependencies(Operation& operation) HEDDLE_REQUIRES(mutex_);
  void Loop() HEDDLE_EXCLUDES(mutex_);
  OperationPtr Pick() HEDDLE_REQUIRES(mutex_);
  OperationPtr FirstOf(OperationPtr wanted) const HEDDLE_REQUIRES(mutex_);
  void Run(Operation& operation) HEDDLE_EXCLUDES(mutex_);

  const FakeOptions options_;
  const std::shared_ptr<FakeMemory> memory_;
  const std::function<void(Duration)> count_;
  const int threads_;  ///< Of kernels: those of the thread that made this.
  int64_t works_ = 0;  ///< That ran. The own thread's.
  mutable Mutex mutex_;
  CondVar changed_;
  Random random_ HEDDLE_GUARDED_BY(mutex_);
  std::array<std::deque<OperationPtr>, kQueues> queues_ HEDDLE_GUARDED_BY(mutex_);
  std::array<OperationPtr, kQueues> newest_ HEDDLE_GUARDED_BY(mutex_);
  OperationPtr before_newest_ HEDDLE_GUARDED_BY(mutex_);         ///< Of compute.
  std::vector<OperationPtr> awaited_ HEDDLE_GUARDED_BY(mutex_);  ///< By the next compute.
  std::deque<OperationPtr> wanted_ HEDDLE_GUARDED_BY(mutex_);    ///< Somebody waits for them.
  int chances_ HEDDLE_GUARDED_BY(mutex_) = 0;  ///< Operations that may run unasked.
  Status status_ HEDDLE_GUARDED_BY(mutex_);    ///< Final, once it is an error.
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Last: it uses what stands above.
};

/// The mark of an operation of `queues`, which outlives it; and the operation of a mark, null for one
/// that has ended from the start.
Mark MarkOf(FakeQueues& queues, OperationPtr operation);
OperationPtr OperationOf(const Mark& mark);

}  // namespace heddle::runtime::testing
