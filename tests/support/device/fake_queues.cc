#include "tests/support/device/fake_queues.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "engine/runtime/device/blas.h"

namespace heddle::runtime::testing {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(200);  // Loops look again.
constexpr uint64_t kOddsOfChance = 8;  // One in so many calls lets something run unasked.

class State final : public Mark::State {
 public:
  State(FakeQueues& queues, OperationPtr operation)
      : queues_(queues),
        operation_(std::move(operation)) {}
  bool Ended() override { return queues_.Ended(operation_); }
  Status Wait(Deadline deadline) override { return queues_.Wait(operation_, deadline); }
  const OperationPtr& operation() const { return operation_; }

 private:
  FakeQueues& queues_;
  OperationPtr operation_;
};

}  // namespace

Mark MarkOf(FakeQueues& queues, OperationPtr operation) {
  return Mark(std::make_shared<State>(queues, std::move(operation)));
}

OperationPtr OperationOf(const Mark& mark) {
  const auto state = std::static_pointer_cast<State>(mark.state());
  return state == nullptr ? nullptr : state->operation();
}

FakeQueues::FakeQueues(const FakeOptions& options,
                       std::shared_ptr<FakeMemory> memory,
                       std::function<void(Duration)> count)
    : options_(options),
      memory_(std::move(memory)),
      count_(std::move(count)),
      threads_(at::get_num_threads()),
      random_(options.seed),
      thread_("fake device", [this] { Loop(); }) {}

FakeQueues::~FakeQueues() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

OperationPtr FakeQueues::Put(Queue queue,
                             bool counted,
                             std::function<void()> run,
                             OperationPtr after) {
  auto operation = std::make_shared<Operation>();
  operation->queue = queue;
  operation->counted = counted;
  operation->run = std::move(run);
  const MutexLock lock(mutex_);
  AddDependencies(*operation);
  if (after != nullptr && !after->ended) {
    operation->after.push_back(std::move(after));
  }
  auto& operations = queues_[static_cast<size_t>(queue)];
  operations.push_back(operation);
  if (queue == Queue::kCompute) {
    before_newest_ = newest_[static_cast<size_t>(queue)];
    if (Has(Fault::kOutOfOrder) && operations.size() >= 2) {
      std::swap(operations.back(), operations[operations.size() - 2]);
    }
  }
  newest_[static_cast<size_t>(queue)] = operation;
  chances_ += random_.Below(kOddsOfChance) == 0 ? 1 : 0;
  changed_.NotifyAll();
  return operation;
}

void FakeQueues::AddDependencies(Operation& operation) {
  if (operation.queue == Queue::kCompute) {
    operation.after = std::exchange(awaited_, {});
    return;
  }
  if (operation.queue != Queue::kDown || Has(Fault::kDownloadEarly)) {
    return;
  }
  OperationPtr before = newest_[static_cast<size_t>(Queue::kCompute)];
  if (Has(Fault::kDownloadOneWorkEarly)) {
    before = before_newest_;
  } else if (Has(Fault::kDownloadAfterUploads)) {
    before = newest_[static_cast<size_t>(Queue::kUp)];
  }
  operation.after = awaited_;  // For what compute waits, a copy that comes after compute does.
  if (before != nullptr && !before->ended) {
    operation.after.push_back(std::move(before));
  }
}

void FakeQueues::Await(OperationPtr before) {
  const MutexLock lock(mutex_);
  awaited_.push_back(std::move(before));
}

OperationPtr FakeQueues::Newest(Queue queue) const {
  const MutexLock lock(mutex_);
  return newest_[static_cast<size_t>(queue)];
}

void FakeQueues::Fail(Status status) {
  const MutexLock lock(mutex_);
  status_ = std::move(status);
}

bool FakeQueues::Ended(const OperationPtr& operation) {
  const MutexLock lock(mutex_);
  if (!operation->ended) {
    ++chances_;  // Who asks again and again gets there.
    changed_.NotifyAll();
  }
  return operation->ended;
}

Status FakeQueues::Wait(const OperationPtr& operation, Deadline deadline) {
  const MutexLock lock(mutex_);
  if (Has(Fault::kWaitGivesUp)) {
    return Status::Ok();
  }
  if (!operation->ended) {
    wanted_.push_back(operation);
    changed_.NotifyAll();
  }
  while (!operation->ended) {
    if (Now() >= deadline && !Has(Fault::kWaitForEver)) {
      return DeadlineExceededError("the device is still at work");
    }
    changed_.WaitUntil(mutex_, std::min(deadline, After(kSlice)));
  }
  if (Has(Fault::kErrorForgotten)) {
    return Status::Ok();
  }
  return Has(Fault::kErrorOnce) ? std::exchange(status_, Status::Ok()) : status_;
}

Status FakeQueues::Drain(Deadline deadline) {
  Status first;
  for (const Queue queue : {Queue::kCompute, Queue::kDown, Queue::kUp, Queue::kPeers}) {
    const OperationPtr operation = Newest(queue);
    if (operation == nullptr || (Has(Fault::kDrainLeavesCopies) && queue != Queue::kCompute)) {
      continue;
    }
    const Status status = Wait(operation, deadline);
    first = first.ok() ? status : first;
  }
  return first;
}

void FakeQueues::Loop() {
  SetThreads(threads_);
  for (;;) {
    OperationPtr operation;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && (operation = Pick()) == nullptr) {
        changed_.WaitUntil(mutex_, After(kSlice));
      }
      if (stop_) {
        return;
      }
    }
    Run(*operation);
    const MutexLock lock(mutex_);
    operation->ended = true;
    operation->after.clear();
    changed_.NotifyAll();
  }
}

// Takes an operation that may run out of its queue; null: none may, or nobody asks.
OperationPtr FakeQueues::Pick() {
  while (!wanted_.empty() && wanted_.front()->ended) {
    wanted_.pop_front();
  }
  OperationPtr next;
  if (!wanted_.empty()) {
    next = FirstOf(wanted_.front());
  } else if (chances_ > 0) {
    --chances_;
    const auto& some = queues_[random_.Below(queues_.size())];
    next = some.empty() ? nullptr : FirstOf(some.front());
  }
  if (next != nullptr) {
    queues_[static_cast<size_t>(next->queue)].pop_front();
  }
  return next;
}

// What has to run first, so that `wanted` can run at last.
OperationPtr FakeQueues::FirstOf(OperationPtr wanted) const {
  for (;;) {
    const OperationPtr& head = queues_[static_cast<size_t>(wanted->queue)].front();
    const auto missing = std::ranges::find_if(
        head->after, [](const OperationPtr& before) { return !before->ended; });
    if (missing == head->after.end()) {
      return head;
    }
    wanted = *missing;
  }
}

void FakeQueues::Run(Operation& operation) {
  const c10::InferenceMode inference;
  bool failed = false;
  {
    const MutexLock lock(mutex_);
    failed = !status_.ok() && !Has(Fault::kErrorForgotten) && !Has(Fault::kErrorOnce);
  }
  if (!failed) {
    memory_->Open();
    const Time begun = Now();
    Status status;
    try {
      operation.run();
      if (operation.queue == Queue::kCompute && ++works_ == options_.error_in_work) {
        status = InternalError("a work has failed");
      }
    } catch (const std::exception& error) {  // libtorch's.
      status = InternalError("{}", error.what());
    }
    memory_->Close();
    if (operation.counted) {
      count_(std::max(Now() - begun, Duration(1)));
    }
    if (!status.ok()) {
      Fail(status);
    }
  }
  operation.run = {};  // What it kept goes before anybody hears that it has ended.
}

}  // namespace heddle::runtime::testing
