/// \file
/// A worker in a thread, for tests of the coordinator's server: its data plane is a table in
/// memory.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "elastic/grpc/coordinator_session.h"
#include "elastic/member/member_loop.h"

namespace heddle::elastic {

inline constexpr Duration kPatience = std::chrono::minutes(2);

// The votes of all workers of a generation. An aborted worker's vote fails; a dead worker fails the
// votes of the others.
class Fabric {
 public:
  struct Outcome {
    Status status;
    bool stop = false;
    std::string peer;
  };

  Outcome Vote(
      int64_t generation, int64_t step, const std::string& name, size_t members, bool stop) {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    Ballot& ballot = ballots_[{generation, step}];
    ballot.votes.insert(name);
    ballot.stop = ballot.stop || stop;
    changed_.NotifyAll();
    while (ballot.votes.size() < members && Now() < deadline) {
      if (fence_[name] > generation) {
        return {AbortedError("fenced"), false, ""};
      }
      if (const auto dead = dead_.find(generation); dead != dead_.end()) {
        return {UnavailableError("lost {}", dead->second), false, dead->second};
      }
      changed_.WaitUntil(mutex_, deadline);
    }
    if (ballot.votes.size() < members) {
      return {DeadlineExceededError("vote"), false, ""};
    }
    return {Status::Ok(), ballot.stop, ""};
  }
  /// The time that a worker computes for a step; 0 after Hurry.
  Duration step_time() const { return step_time_.load(); }
  void Hurry() { step_time_.store(Duration::zero()); }
  void Fence(const std::string& name, int64_t generation) {
    const MutexLock lock(mutex_);
    fence_[name] = generation;
    changed_.NotifyAll();
  }
  void Die(const std::string& name, int64_t generation) {
    const MutexLock lock(mutex_);
    dead_[generation] = name;
    changed_.NotifyAll();
  }

 private:
  struct Ballot {
    std::set<std::string> votes;
    bool stop = false;
  };
  std::atomic<Duration> step_time_ = Duration(std::chrono::milliseconds(5));
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<int64_t, int64_t>, Ballot> ballots_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> fence_ HEDDLE_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> dead_ HEDDLE_GUARDED_BY(mutex_);
};

// A worker in a thread: the shipped session, loop and member, with a trainer that only counts
// steps.
class FakeWorker : public MemberHost {
 public:
  FakeWorker(const std::string& coordinator,
             const std::string& name,
             int64_t steps,
             Fabric& fabric,
             const std::string& certificates = "")
      : name_(name),
        steps_(steps),
        fabric_(fabric) {
    MemberIdentity identity;
    identity.name = name;
    identity.incarnation = std::string(16 - name.size(), '.') + name;
    identity.host = "localhost";
    identity.pid = 1;
    identity.data_address = "memory";
    identity.arithmetic = {{"processor", "fake"}};
    loop_ = std::make_unique<MemberLoop>(Member(identity, MemberOptions(), Now()), *this);
    SessionOptions options;
    options.coordinator = coordinator;
    options.certificates = certificates;
    options.up = [this] {
      ++streams_;
      loop_->Post(StreamUp());
    };
    options.down = [this](const std::string& reason) { loop_->Post(StreamDown{reason}); };
    options.received = [this](const wire::ToWorker& message) {
      loop_->Post(FromCoordinator{message});
    };
    trainer_ = Thread("trainer", [this] { Train(); });
    session_ = std::make_unique<CoordinatorSession>(options);
    const MutexLock lock(mutex_);
    started_ = true;
    changed_.NotifyAll();
  }
  ~FakeWorker() override {
    Close(Now());
    loop_->Stop();
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      changed_.NotifyAll();
    }
    fabric_.Fence(name_, 1 << 30);
    trainer_.Join();
  }

  void Perform(const MemberAction& action) override {
    if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
      WaitStarted();
      session_->Send(send->message);
    } else if (const auto* abort = std::get_if<AbortBelow>(&action)) {
      fabric_.Fence(name_, abort->generation);
    } else if (const auto* lower = std::get_if<LowerPlan>(&action)) {
      loop_->Post(PlanLowered{lower->generation, Status::Ok(), 42});  // Lowers beside training.
    } else if (const auto* stop = std::get_if<RequestStop>(&action)) {
      const MutexLock lock(mutex_);
      stop_generation_ = stop->generation;
    } else if (const auto* exit = std::get_if<ExitWorker>(&action)) {
      const MutexLock lock(mutex_);
      exit_code_ = exit->code;
      exit_reason_ = exit->reason;
      ended_ = true;
      changed_.NotifyAll();
    } else {
      const MutexLock lock(mutex_);
      work_.push_back(action);
      changed_.NotifyAll();
    }
  }

  void Refresh() { session_->Refresh(); }
  /// The number of streams to the coordinator that were opened so far.
  int streams() const { return streams_; }
  void Terminate() { loop_->Post(TerminateRequested{"SIGTERM"}); }

  std::optional<int> WaitExit() {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (!exit_code_ && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return exit_code_;
  }
  std::string exit_reason() const {
    const MutexLock lock(mutex_);
    return exit_reason_;
  }
  int64_t generation() const {
    const MutexLock lock(mutex_);
    return generation_;
  }

 private:
  void WaitStarted() {
    const MutexLock lock(mutex_);
    while (!started_) {
      changed_.WaitUntil(mutex_, After(std::chrono::seconds(1)));
    }
  }

  void Train() {
    Work();
    if (WaitStarted(); HasExited()) {  // Like the shipped worker before its end.
      Close(After(std::chrono::seconds(2)));
    }
  }
  void Close(Deadline deadline) {
    const MutexLock lock(close_mutex_);
    session_->Close(deadline);
  }
  bool HasExited() const {
    const MutexLock lock(mutex_);
    return exit_code_.has_value();
  }

  void Work() {
    while (true) {
      MemberAction action;
      {
        const MutexLock lock(mutex_);
        while (work_.empty() && !ended_) {
          changed_.WaitUntil(mutex_, After(std::chrono::seconds(1)));
        }
        if (ended_) {
          return;
        }
        action = std::move(work_.front());
        work_.pop_front();
      }
      if (std::holds_alternative<ApplyJob>(action)) {
        loop_->Post(JobApplied{Status::Ok()});
      } else if (std::holds_alternative<MeasureProfile>(action)) {
        loop_->Post(ProfileMeasured{Status::Ok(), "{}"});
      } else if (const auto* move = std::get_if<MoveState>(&action)) {
        members_ = static_cast<size_t>(move->prepared.members_size());
        StateMoved moved;
        moved.certificate.set_step(move->start.applied_step());
        for (const int32_t parameter : {0, 1}) {  // The parameters of server_fixture.h's plans.
          moved.certificate.add_parameters(parameter);
          moved.certificate.add_digests(1);
        }
        moved.generation = move->start.generation();
        moved.bytes["memory"] = 100;
        loop_->Post(moved);
      } else if (const auto* run = std::get_if<RunSteps>(&action)) {
        Run(*run);
      }
    }
  }

  void Run(const RunSteps& run) {
    {
      const MutexLock lock(mutex_);
      generation_ = run.generation;
    }
    RunEnded ended;
    ended.generation = run.generation;
    ended.applied_step = run.applied_step;
    while (ended.applied_step < steps_) {
      const int64_t step = ended.applied_step + 1;
      bool stop = false;
      {
        const MutexLock lock(mutex_);
        stop = stop_generation_ == run.generation;
        changed_.WaitUntil(mutex_, After(fabric_.step_time()));
      }
      const Fabric::Outcome outcome = fabric_.Vote(run.generation, step, name_, members_, stop);
      if (!outcome.status.ok()) {
        ended.how = RunEnded::How::kFailed;
        ended.status = outcome.status;
        ended.peer = outcome.peer;
        ended.voted = true;
        loop_->Post(ended);
        return;
      }
      StepApplied applied;
      applied.record.set_step(step);
      applied.record.set_generation(run.generation);
      applied.record.set_loss(1.0 / static_cast<double>(step));
      applied.record.set_gradient_norm(1);
      applied.record.set_seconds(0.005);
      loop_->Post(applied);
      ended.applied_step = step;
      if (outcome.stop && step < steps_) {
        ended.how = RunEnded::How::kStopped;
        loop_->Post(ended);
        return;
      }
    }
    wire::CheckpointPart part;
    part.set_step(steps_);
    part.set_generation(run.generation);
    part.set_part(name_);
    loop_->Post(Saved{part});
    ended.how = RunEnded::How::kFinished;
    loop_->Post(ended);
  }

  const std::string name_;
  const int64_t steps_;
  Fabric& fabric_;
  std::atomic<int> streams_ = 0;
  size_t members_ = 0;  // Trainer's thread only.
  std::unique_ptr<MemberLoop> loop_;
  std::unique_ptr<CoordinatorSession> session_;

  Mutex close_mutex_;  // One thread ends the stream.
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<MemberAction> work_ HEDDLE_GUARDED_BY(mutex_);
  bool started_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t stop_generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::optional<int> exit_code_ HEDDLE_GUARDED_BY(mutex_);
  std::string exit_reason_ HEDDLE_GUARDED_BY(mutex_);
  Thread trainer_;
};

}  // namespace heddle::elastic
