#include "comm/mpi/engine.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/eventfd.h>

#include "base/system/launched.h"
#include "comm/mpi/pipes.h"

namespace heddle::comm {

namespace {

/// Turns without news before the thread begins to sleep, and its longest sleep.
constexpr int kBusyTurns = 64;
constexpr Duration kFirstRest = std::chrono::microseconds(20);
constexpr Duration kLongestRest = std::chrono::milliseconds(1);
/// While a message is on its way: large ones take several turns of both sides.
constexpr Duration kLongestRestInFlight = std::chrono::microseconds(50);
/// Timeout of MPI_Finalize, which has no rank to wait for, because it comes after a barrier.
constexpr Duration kFinalizeTime = std::chrono::seconds(5);

Status Checked(int code, const char* call) {
  return code == MPI_SUCCESS ? Status::Ok() : MpiError(code, call);
}

}  // namespace

Result<std::shared_ptr<MpiEngine>> MpiEngine::Start(Duration silence_timeout, Deadline deadline) {
  if (silence_timeout < std::chrono::milliseconds(100)) {
    return InvalidArgumentError("a silence timeout of {} s: at least 0.1 s",
                                Seconds(silence_timeout));
  }
  std::shared_ptr<MpiEngine> engine(new MpiEngine(silence_timeout));
  engine->thread_ = std::make_unique<Thread>("mpi", [engine] { engine->Run(); });
  const MutexLock lock(engine->mutex_);
  while (!engine->initialised_ && Now() < deadline) {
    engine->changed_.WaitUntil(engine->mutex_, deadline);
  }
  if (!engine->initialised_) {
    engine->stopping_ = true;
    return DeadlineExceededError(
        "MPI_Init_thread has not returned: another rank of this MPI job did not start, or hangs");
  }
  if (!engine->start_status_.ok()) {
    return engine->start_status_;
  }
  return engine;
}

MpiEngine::~MpiEngine() {
  if (thread_ != nullptr && thread_->joinable()) {
    // It hung inside MPI when Start or Finish gave it up. It holds the engine, so if it did come
    // back, this runs on it.
    static_cast<void>(thread_.release());
  }
}

Status MpiEngine::Initialise() {
  int initialised = 0;
  HEDDLE_RETURN_IF_ERROR(Checked(MPI_Initialized(&initialised), "MPI_Initialized"));
  if (initialised != 0) {
    return FailedPreconditionError("MPI was started before in this process");
  }
  int provided = 0;
  HEDDLE_RETURN_IF_ERROR(Checked(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                                 "MPI_Init_thread"));
  if (provided < MPI_THREAD_FUNNELED) {
    return FailedPreconditionError("this MPI allows no process with threads");
  }
  HEDDLE_RETURN_IF_ERROR(Checked(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                                 "MPI_Comm_set_errhandler"));
  HEDDLE_RETURN_IF_ERROR(Checked(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank"));
  HEDDLE_RETURN_IF_ERROR(Checked(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size"));
  if (const auto launched = FindLauncher(); launched && launched->size > 1 && size_ == 1) {
    return FailedPreconditionError(
        "{} started {} processes, but MPI found itself alone: this MPI does not know the launcher; "
        "start with mpirun, or with srun --mpi=pmix where Slurm has it",
        launched->launcher, launched->size);
  }
  return Status::Ok();
}

void MpiEngine::Run() {
  const Status status = Initialise();
  bool finalize = false;
  {
    const MutexLock lock(mutex_);
    start_status_ = status;
    initialised_ = true;
    stopping_ = stopping_ || !status.ok();
    changed_.NotifyAll();
  }
  int idle_turns = 0;
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) {
        finalize = finalize_;
        break;
      }
    }
    const bool worked = RunTasks();
    const bool moved = TurnClasses();
    idle_turns = worked || moved ? 0 : idle_turns + 1;
    if (idle_turns > kBusyTurns) {
      const bool in_flight =
          std::any_of(pipes_of_classes_.begin(), pipes_of_classes_.end(),
                      [](const auto& traffic_class) { return traffic_class->InFlight(); });
      Rest(std::min(in_flight ? kLongestRestInFlight : kLongestRest,
                    kFirstRest * (idle_turns - kBusyTurns)));
    }
  }
  for (const auto& traffic_class : pipes_of_classes_) {
    traffic_class->Release();
  }
  pipes_of_classes_.clear();
  if (finalize) {
    MPI_Finalize();
  }
  const MutexLock lock(mutex_);
  exited_ = true;
  changed_.NotifyAll();
}

bool MpiEngine::RunTasks() {
  std::vector<std::shared_ptr<Task>> tasks;
  {
    const MutexLock lock(mutex_);
    tasks = tasks_;
  }
  bool worked = false;
  for (const auto& task : tasks) {
    const Result<bool> done = task->poll();
    if (done.ok() && !*done) {
      continue;
    }
    worked = true;
    const MutexLock lock(mutex_);
    task->ended = true;
    task->status = done.status();
    std::erase(tasks_, task);
    changed_.NotifyAll();
  }
  return worked;
}

bool MpiEngine::TurnClasses() {
  const Time now = Now();
  bool moved = false;
  for (const auto& traffic_class : pipes_of_classes_) {
    moved = traffic_class->Turn(now) || moved;
  }
  std::erase_if(pipes_of_classes_, [now](const auto& traffic_class) {
    const bool over = traffic_class->Over(now);
    if (over) {
      traffic_class->Release();
    }
    return over;
  });
  return moved;
}

void MpiEngine::Rest(Duration rest) {
  const MutexLock lock(mutex_);
  if (!awake_ && !stopping_) {
    changed_.WaitUntil(mutex_, After(rest));
  }
  awake_ = false;
}

void MpiEngine::Wake() {
  const MutexLock lock(mutex_);
  if (!awake_) {
    awake_ = true;
    changed_.NotifyAll();
  }
}

void MpiEngine::Poison(const Status& reason) {
  const MutexLock lock(mutex_);
  if (poison_.ok()) {
    poison_ = reason;
  }
}

Status MpiEngine::Do(Poll poll, const std::string& what, Deadline deadline) {
  const auto task = std::make_shared<Task>();
  task->poll = std::move(poll);
  const MutexLock lock(mutex_);
  if (stopping_) {
    return FailedPreconditionError("MPI has ended in this process");
  }
  tasks_.push_back(task);
  awake_ = true;
  changed_.NotifyAll();
  while (!task->ended && Now() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  if (task->ended) {
    return task->status;
  }
  // MPI cannot take it back; whatever follows on this world could not match.
  std::erase(tasks_, task);
  const Status status = DeadlineExceededError("{}: not every rank of the MPI job came", what);
  poison_ = poison_.ok() ? status : poison_;
  return status;
}

namespace {

/// A communicator of its own and an exchange of records over it, step by step: what MPI works on,
/// and goes on working on when the call was given up. For the MPI thread.
class Forming {
 public:
  Forming(Bytes own, size_t ranks) : own_(std::move(own)), all_(own_.size() * ranks) {}

  MPI_Comm communicator() const { return communicator_; }
  Bytes RecordOf(size_t rank) const {
    const auto from = all_.begin() + static_cast<int64_t>(rank * own_.size());
    return {from, from + static_cast<int64_t>(own_.size())};
  }

  /// True when both are there.
  Result<bool> Advance() {
    if (step_ == Step::kDuplicate) {
      HEDDLE_RETURN_IF_ERROR(
          Checked(MPI_Comm_idup(MPI_COMM_WORLD, &communicator_, &request_), "MPI_Comm_idup"));
      step_ = Step::kDuplicating;
    }
    int done = 0;
    HEDDLE_RETURN_IF_ERROR(Checked(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done == 0 || step_ == Step::kExchanging) {
      return done != 0;
    }
    HEDDLE_RETURN_IF_ERROR(Checked(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN),
                                   "MPI_Comm_set_errhandler"));
    const auto size = static_cast<int>(own_.size());
    HEDDLE_RETURN_IF_ERROR(Checked(MPI_Iallgather(own_.data(), size, MPI_BYTE, all_.data(), size,
                                                  MPI_BYTE, communicator_, &request_),
                                   "MPI_Iallgather"));
    step_ = Step::kExchanging;
    return false;
  }

 private:
  enum class Step : uint8_t { kDuplicate, kDuplicating, kExchanging } step_ = Step::kDuplicate;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  const Bytes own_;
  Bytes all_;
};

}  // namespace

Result<std::shared_ptr<MpiEngine::Pipes>> MpiEngine::MakePipes() {
  Pipes::Options options;
  options.rank = rank_;
  options.silence_timeout = silence_timeout_;
  options.wake = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->Wake();
    }
  };
  options.poison = [weak = weak_from_this()](const Status& reason) {
    if (const auto self = weak.lock()) {
      self->Poison(reason);
    }
  };
  for (int rank = 0; rank < size_; ++rank) {
    std::unique_ptr<MpiPipe> pipe;
    if (rank != rank_) {
      UniqueFd notification(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
      if (!notification.valid()) {
        return ErrnoError(errno, "eventfd");
      }
      pipe = std::make_unique<MpiPipe>(std::move(notification));
    }
    options.pipes.push_back(std::move(pipe));
  }
  return std::make_shared<Pipes>(std::move(options));
}

Result<MpiEngine::Opened> MpiEngine::Open(const Bytes& record, Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    if (!poison_.ok()) {
      return FailedPreconditionError(
          "an MPI job forms no group after a loss ({}): start the job again", poison_.message());
    }
  }
  // Before the first call of MPI: what fails here may be tried again.
  HEDDLE_ASSIGN_OR_RETURN(const auto traffic_class, MakePipes());
  const auto forming = std::make_shared<Forming>(record, static_cast<size_t>(size_));
  const Status status = Do(
      [this, forming, traffic_class]() -> Result<bool> {
        HEDDLE_ASSIGN_OR_RETURN(const bool formed, forming->Advance());
        if (formed) {
          traffic_class->Begin(forming->communicator());
          pipes_of_classes_.push_back(traffic_class);
        }
        return formed;
      },
      "forming a group", deadline);
  if (!status.ok()) {
    // This rank's next calls would not match those of the others.
    Poison(status);
    // At the deadline the MPI thread may be about to begin the traffic class, which is not used.
    traffic_class->Close();
    KeepForever(forming);
    return status;
  }
  Opened opened;
  opened.traffic_class = traffic_class;
  for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
    opened.records.push_back(forming->RecordOf(rank));
  }
  return opened;
}

Status MpiEngine::EndTogether(Deadline deadline) {
  // Beside the group's goodbyes: every rank must have come to its end before MPI_Finalize, which
  // blocks.
  const auto request = std::make_shared<MPI_Request>(MPI_REQUEST_NULL);
  const Status status = Do(
      [this, request, begun = false]() mutable -> Result<bool> {
        if (!pipes_of_classes_.empty()) {
          return false;
        }
        if (!begun) {
          HEDDLE_RETURN_IF_ERROR(
              Checked(MPI_Ibarrier(MPI_COMM_WORLD, request.get()), "MPI_Ibarrier"));
          begun = true;
        }
        int done = 0;
        HEDDLE_RETURN_IF_ERROR(
            Checked(MPI_Test(request.get(), &done, MPI_STATUS_IGNORE), "MPI_Test"));
        return done != 0;
      },
      "ending MPI", deadline);
  if (!status.ok()) {
    KeepForever(request);
  }
  return status;
}

Status MpiEngine::Finish(Deadline deadline) {
  Status status;
  {
    const MutexLock lock(mutex_);
    if (exited_ || stopping_) {
      return Status::Ok();
    }
    status = poison_.ok() ? Status::Ok()
                          : UnavailableError("MPI is left without MPI_Finalize after a loss: {}",
                                             poison_.message());
  }
  if (status.ok()) {
    status = EndTogether(deadline);
  }
  Deadline last = deadline;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    finalize_ = status.ok();
    changed_.NotifyAll();
    last = std::max<Time>(deadline, After(kFinalizeTime));
    while (!exited_ && Now() < last) {
      changed_.WaitUntil(mutex_, last);
    }
    if (!exited_) {
      // It hangs inside MPI, where nothing reaches it: the thread is left to the process' end.
      return DeadlineExceededError("MPI's thread does not return from MPI");
    }
  }
  thread_->Join();
  return status;
}

}  // namespace heddle::comm
