#include "engine/runtime/device/cuda/queues.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <cuda_runtime_api.h>

#include "engine/runtime/device/cuda/cuda_errors.h"

namespace heddle::runtime::cuda {
namespace {

// A wait looks at once so often, and then after so long each.
constexpr int kEagerRounds = 200;
constexpr Duration kNap = std::chrono::microseconds(50);
// How many rounds of a wait pass between looks at what else has ended.
constexpr int kHarvestRounds = 64;

class MarkState final : public Mark::State {
 public:
  MarkState(std::shared_ptr<Queues> queues, Event event)
      : queues_(std::move(queues)),
        event_(std::move(event)) {}
  bool Ended() override { return queues_->Ended(event_); }
  Status Wait(Deadline deadline) override { return queues_->Wait(event_, deadline); }
  const Event& event() const { return event_; }

 private:
  const std::shared_ptr<Queues> queues_;
  const Event event_;
};

}  // namespace

Event EventOf(const Mark& mark) {
  const auto state = std::static_pointer_cast<MarkState>(mark.state());
  return state == nullptr ? Event() : state->event();
}

Queues::Queues(int ordinal, std::function<void(Duration)> count)
    : ordinal_(ordinal),
      count_(std::move(count)) {
  Use();
  for (CUstream_st*& stream : streams_) {
    Try(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
}

// The last mark or tensor may go when the process ends, and CUDA with it: errors mean nothing then.
// The streams stay, because libtorch's allocator keeps memory by their names.
Queues::~Queues() {
  begun_.reset();
  copies_ = {};
  works_.clear();
  for (const auto& events : free_) {
    for (CUevent_st* const event : events) {
      static_cast<void>(cudaEventDestroy(event));
    }
  }
}

void Queues::Use() const {
  static_cast<void>(cudaSetDevice(ordinal_));
}

bool Queues::Try(int code, std::string_view call) {
  if (code == cudaSuccess) {
    return true;
  }
  static_cast<void>(cudaGetLastError());  // So that the next launch is not blamed for it.
  Fail(StatusOf(code, call));
  return false;
}

void Queues::Fail(Status status) {
  const MutexLock lock(mutex_);
  if (status_.ok()) {
    status_ = std::move(status);
  }
}

Status Queues::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

Event Queues::NewEvent(Timed timed) {
  const auto index = static_cast<size_t>(timed);
  CUevent_st* event = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!free_[index].empty()) {
      event = free_[index].back();
      free_[index].pop_back();
    }
  }
  if (event == nullptr &&
      !Try(cudaEventCreateWithFlags(
               &event, timed == Timed::kYes ? cudaEventDefault : cudaEventDisableTiming),
           "cudaEventCreateWithFlags")) {
    return {};
  }
  return Event(event, [self = weak_from_this(), index](CUevent_st* unused) {
    if (const auto queues = self.lock()) {
      const MutexLock lock(queues->mutex_);
      queues->free_[index].push_back(unused);
    } else {
      static_cast<void>(cudaEventDestroy(unused));
    }
  });
}

Event Queues::Record(Queue queue, Timed timed) {
  Use();
  Event event = NewEvent(timed);
  if (event == nullptr || !Try(cudaEventRecord(event.get(), stream(queue)), "cudaEventRecord")) {
    return {};
  }
  return event;
}

void Queues::Follow(Queue later, Queue earlier) {
  Await(later, Record(earlier, Timed::kNo));
}

void Queues::Await(Queue later, const Event& event) {
  if (event != nullptr) {
    Use();
    Try(cudaStreamWaitEvent(stream(later), event.get(), 0), "cudaStreamWaitEvent");
  }
}

Mark Queues::MarkOf(Queue queue, Kept kept) {
  Event event = Record(queue, Timed::kNo);
  Mark mark(std::make_shared<MarkState>(shared_from_this(), event));
  const MutexLock lock(mutex_);
  copies_[static_cast<size_t>(queue)].push_back({.end = std::move(event), .kept = std::move(kept)});
  return mark;
}

void Queues::BeginWork() {
  begun_ = Point();
}

void Queues::EndWork() {
  Event end = Point();
  if (begun_ != nullptr && end != nullptr) {
    const MutexLock lock(mutex_);
    works_.push_back({.begin = std::move(begun_), .end = std::move(end)});
  }
  begun_.reset();
}

bool Queues::HasEnded(const Event& event) {
  if (event == nullptr) {
    return true;
  }
  const cudaError_t code = cudaEventQuery(event.get());
  if (code != cudaErrorNotReady) {
    Try(code, "work on the card");
    return true;
  }
  static_cast<void>(cudaGetLastError());  // Some of CUDA's versions keep it as an error.
  return false;
}

bool Queues::Ended(const Event& event) {
  Use();
  return HasEnded(event);
}

void Gate::Open() {
  const MutexLock lock(mutex_);
  open_ = true;
  opened_.NotifyAll();
}

void Gate::Await() {
  const Deadline deadline = After(kLongestHold);
  const MutexLock lock(mutex_);
  while (!open_ && Now() < deadline) {
    opened_.WaitUntil(mutex_, deadline);
  }
}

std::shared_ptr<Gate> Queues::HoldCompute() {
  Use();
  auto gate = std::make_shared<Gate>();
  // Called by a thread of the driver, when the stream gets there.
  const auto await = [](void* data) { static_cast<Gate*>(data)->Await(); };
  Try(cudaLaunchHostFunc(stream(Queue::kCompute), await, gate.get()), "cudaLaunchHostFunc");
  MarkOf(Queue::kCompute, {.tensors = {}, .memory = {gate}});
  return gate;
}

Duration Queues::Between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  Try(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return std::max(FromSeconds(static_cast<double>(milliseconds) / 1000), Duration(1));
}

void Queues::Harvest() {
  Use();
  // They go after the lock is free: what they keep returns to pools, and events to this.
  std::vector<Copy> copies;
  std::vector<Work> works;
  const auto take = [&](auto& from, auto& to) {
    for (;;) {
      Event end;
      {
        const MutexLock lock(mutex_);
        if (from.empty()) {
          return;
        }
        end = from.front().end;
      }
      if (!HasEnded(end)) {
        return;
      }
      const MutexLock lock(mutex_);
      if (!from.empty() && from.front().end == end) {  // No other thread was faster.
        to.push_back(std::move(from.front()));
        from.pop_front();
      }
    }
  };
  for (auto& queue : copies_) {
    take(queue, copies);
  }
  take(works_, works);
  for (const Work& work : works) {
    const Duration duration = Between(work.begin, work.end);
    const MutexLock lock(mutex_);
    if (count_) {
      count_(duration);
    }
  }
}

void Queues::Nap(int round) {
  if (round < kEagerRounds) {
    std::this_thread::yield();
    return;
  }
  const MutexLock lock(mutex_);
  never_.WaitUntil(mutex_, After(kNap));
}

Status Queues::Wait(const Event& event, Deadline deadline) {
  Use();
  for (int round = 0;; ++round) {
    const bool ended = HasEnded(event);
    if (ended || round % kHarvestRounds == kHarvestRounds - 1) {
      Harvest();
    }
    if (ended) {
      return status();
    }
    if (Now() >= deadline) {
      return DeadlineExceededError("the card is still at work");
    }
    Nap(round);
  }
}

Status Queues::Drain(Deadline deadline) {
  for (const Queue queue : {Queue::kCompute, Queue::kDown, Queue::kUp, Queue::kPeers}) {
    HEDDLE_RETURN_IF_ERROR(Wait(Record(queue, Timed::kNo), deadline));
  }
  return status();
}

void Queues::Close() {
  const MutexLock lock(mutex_);
  count_ = {};
}

}  // namespace heddle::runtime::cuda
