// The shells with real sockets in one process: a coordinator, workers whose data plane is a table
// in memory, a loss, a join, a drain, a coordinator that is killed and comes back.
#include <algorithm>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "base/system/file.h"
#include "base/thread.h"
#include "elastic/grpc/client.h"
#include "elastic/grpc/coordinator_session.h"
#include "elastic/grpc/server.h"
#include "elastic/member/member_loop.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(30);

// Votes of all workers of a generation meet here; an aborted or dead worker fails the others.
class Fabric {
 public:
  struct Outcome {
    Status status;
    bool stop = false;
    std::string peer;
  };

  Outcome Vote(
      int64_t generation, int64_t step, const std::string& name, size_t members, bool stop) {
    const Deadline deadline = After(std::chrono::seconds(20));
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
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<int64_t, int64_t>, Ballot> ballots_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> fence_ HEDDLE_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> dead_ HEDDLE_GUARDED_BY(mutex_);
};

// A worker process in a thread: the shipped session, loop and member around a trainer that counts.
class FakeWorker : public MemberHost {
 public:
  FakeWorker(const std::string& coordinator, const std::string& name, int64_t steps, Fabric& fabric)
      : name_(name),
        steps_(steps),
        fabric_(fabric) {
    MemberIdentity identity;
    identity.name = name;
    identity.incarnation = std::string(16 - name.size(), '.') + name;
    identity.host = "localhost";
    identity.pid = 1;
    identity.data_address = "memory";
    loop_ = std::make_unique<MemberLoop>(Member(identity, MemberOptions(), Now()), *this);
    SessionOptions options;
    options.coordinator = coordinator;
    options.up = [this] { loop_->Post(StreamUp()); };
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
    session_->Close(Now());
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
      loop_->Post(PlanLowered{lower->generation, Status::Ok(), 42});  // Beside training.
    } else if (const auto* stop = std::get_if<RequestStop>(&action)) {
      const MutexLock lock(mutex_);
      stop_generation_ = stop->generation;
    } else if (const auto* exit = std::get_if<ExitWorker>(&action)) {
      const MutexLock lock(mutex_);
      exit_code_ = exit->code;
      ended_ = true;
      changed_.NotifyAll();
    } else {
      const MutexLock lock(mutex_);
      work_.push_back(action);
      changed_.NotifyAll();
    }
  }

  void Terminate() { loop_->Post(TerminateRequested{"SIGTERM"}); }

  std::optional<int> WaitExit() {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (!exit_code_ && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return exit_code_;
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
        changed_.WaitUntil(mutex_, After(std::chrono::milliseconds(5)));  // The step's compute.
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
  size_t members_ = 0;  // Trainer's thread only.
  std::unique_ptr<MemberLoop> loop_;
  std::unique_ptr<CoordinatorSession> session_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<MemberAction> work_ HEDDLE_GUARDED_BY(mutex_);
  bool started_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t stop_generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t generation_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::optional<int> exit_code_ HEDDLE_GUARDED_BY(mutex_);
  Thread trainer_;
};

// A store that sees whether what it is told to be known was made durable in the log before.
class WatchedStore : public StateStore {
 public:
  WatchedStore(std::unique_ptr<StateStore> store, const int64_t& synced)
      : store_(std::move(store)),
        synced_(synced) {}
  Result<std::optional<DurableState>> Load() override { return store_->Load(); }
  Status Save(const DurableState& state) override {
    EXPECT_LE(state.known_step, synced_);
    return store_->Save(state);
  }

 private:
  const std::unique_ptr<StateStore> store_;
  const int64_t& synced_;
};

class GrpcTest : public testing::Test {
 protected:
  void StartServer(const std::string& listen = "127.0.0.1:0") {
    auto store = OpenSqliteStore(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    store_ = std::make_unique<WatchedStore>(std::move(*store), synced_step_);
    CoordinatorServerOptions options;
    options.listen = listen;
    options.store = store_.get();
    options.hooks.read_job = [this](const std::string& yaml,
                                    const std::string& /*path*/) -> Result<Job> {
      if (yaml != "job") {
        return InvalidArgumentError("no job");
      }
      Job job;
      job.id = "the-job";
      job.yaml = yaml;
      job.policy.total_steps = steps_;
      job.policy.initial_workers = initial_workers_;
      return job;
    };
    options.hooks.plan = [](const Job& /*job*/, const PlanRequest& request) {
      PlanOutcome outcome;
      outcome.plan_json = "{\"generation\": " + std::to_string(request.generation) + "}";
      for (const Candidate& candidate : request.candidates) {
        outcome.members.push_back(candidate.name);
        outcome.program_hashes.push_back(42);
        outcome.parameters.push_back({0, 1});
      }
      outcome.parameter_count = 2;
      outcome.predicted_step_seconds = 0.005 / static_cast<double>(outcome.members.size());
      outcome.current_step_seconds = 0.02;
      return outcome;
    };
    options.hooks.commit = [](const Job& /*job*/, const CommitCheckpoint& commit) {
      CheckpointCommitted done;
      done.bytes = static_cast<int64_t>(commit.parts.size());
      return done;
    };
    options.hooks.log = [this](const LogEvent& event) {
      const MutexLock lock(mutex_);
      log_.push_back(event);
      if (event.kind == "step") {
        logged_step_ = std::get<int64_t>(*event.Find("step"));
      }
      changed_.NotifyAll();
    };
    options.hooks.sync_log = [this] {
      synced_step_ = logged_step_;
      return Status::Ok();
    };
    auto server = CoordinatorServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
  }

  void AddWorker(const std::string& name) {
    workers_[name] = std::make_unique<FakeWorker>(server_->address(), name, steps_, fabric_);
  }

  // The process is gone: no word from it, and its peers see their connections break.
  void KillWorker(const std::string& name) {
    const int64_t generation = workers_.at(name)->generation();
    fabric_.Die(name, generation);
    workers_.erase(name);
  }

  // Waits for an entry of the log; its number from `from`.
  bool WaitFor(const std::function<bool(const LogEvent&)>& match) {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (true) {
      if (std::any_of(log_.begin(), log_.end(), match)) {
        return true;
      }
      if (Now() >= deadline) {
        return false;
      }
      changed_.WaitUntil(mutex_, deadline);
    }
  }
  bool WaitForKind(const std::string& kind) {
    return WaitFor([&](const LogEvent& event) { return event.kind == kind; });
  }
  bool WaitForStep(int64_t step) {
    return WaitFor([&](const LogEvent& event) {
      return event.kind == "step" && std::get<int64_t>(*event.Find("step")) >= step;
    });
  }
  std::vector<int64_t> Steps() {
    const MutexLock lock(mutex_);
    std::set<int64_t> steps;
    for (const LogEvent& event : log_) {
      if (event.kind == "step") {
        steps.insert(std::get<int64_t>(*event.Find("step")));
      }
    }
    return {steps.begin(), steps.end()};
  }
  void TearDown() override {
    if (HasFailure()) {
      const MutexLock lock(mutex_);
      for (const LogEvent& event : log_) {
        if (event.kind != "step") {
          std::cout << FormatLogEvent(event, 0) << "\n";
        }
      }
    }
  }
  void ExpectFinished() {
    const auto end = server_->WaitForEnd(After(kPatience));
    ASSERT_TRUE(end.has_value());
    EXPECT_TRUE(end->ok) << end->reason;
    std::vector<int64_t> all;
    for (int64_t step = 1; step <= steps_; ++step) {
      all.push_back(step);
    }
    EXPECT_EQ(Steps(), all);
    const MutexLock lock(mutex_);
    EXPECT_EQ(log_.back().kind, "job_finished");
  }

  const TemporaryFolder folder_;
  int64_t steps_ = 60;
  int initial_workers_ = 3;
  Fabric fabric_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<LogEvent> log_ HEDDLE_GUARDED_BY(mutex_);
  // The event loop's.
  int64_t logged_step_ = 0;
  int64_t synced_step_ = 0;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<CoordinatorServer> server_;
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
};

TEST_F(GrpcTest, TrainsToTheEndAndReleasesItsWorkers) {
  StartServer();
  for (const char* name : {"a", "b", "c"}) {
    AddWorker(name);
  }
  ASSERT_TRUE(server_->Submit("job", "").ok());
  ExpectFinished();
  for (auto& [name, worker] : workers_) {
    EXPECT_EQ(worker->WaitExit(), 0) << name;
  }
}

TEST_F(GrpcTest, GoesOnAfterALossAJoinAndADrain) {
  steps_ = 1500;  // Some seconds: enough for all three to be worth it.
  StartServer();
  ASSERT_TRUE(server_->Submit("job", "").ok());
  for (const char* name : {"a", "b", "c"}) {
    AddWorker(name);
  }
  ASSERT_TRUE(WaitForStep(5));
  KillWorker("b");
  ASSERT_TRUE(WaitForKind("resumed"));
  AddWorker("d");
  ASSERT_TRUE(WaitFor([](const LogEvent& event) {
    return event.kind == "state_moved" && std::get<int64_t>(*event.Find("bytes")) == 300;
  }));
  ASSERT_TRUE(CoordinatorClient(server_->address()).Drain("a").ok());
  ASSERT_TRUE(WaitForKind("worker_left"));
  EXPECT_EQ(workers_.at("a")->WaitExit(), 0);
  ExpectFinished();
}

TEST_F(GrpcTest, ARestartedCoordinatorAdoptsItsWorkers) {
  steps_ = 300;
  StartServer();
  ASSERT_TRUE(server_->Submit("job", "").ok());
  for (const char* name : {"a", "b", "c"}) {
    AddWorker(name);
  }
  ASSERT_TRUE(WaitForStep(20));
  const std::string address = server_->address();
  server_.reset();
  store_.reset();
  StartServer(address);
  EXPECT_TRUE(server_->resumed());
  ASSERT_TRUE(WaitForKind("coordinator_restarted"));
  ExpectFinished();
  const MutexLock lock(mutex_);
  for (const LogEvent& event : log_) {
    EXPECT_NE(event.kind, "worker_lost");
    EXPECT_NE(event.kind, "resumed");
  }
}

TEST_F(GrpcTest, AnswersTheCommandLine) {
  StartServer();
  CoordinatorClient client(server_->address());
  auto status = client.Status();
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  EXPECT_EQ(status->phase(), "idle");
  EXPECT_EQ(client.Submit("nonsense", "").status().code(), StatusCode::kInvalidArgument);
  auto id = client.Submit("job", "");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(*id, "the-job");
  EXPECT_EQ(client.Submit("job", "").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.Drain("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(client.Emulate("nobody", {}).code(), StatusCode::kNotFound);
  status = client.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->phase(), "forming");
  EXPECT_THAT(StatusToJson(*status), HasSubstr("\"total_steps\": \"60\""));
  EXPECT_EQ(CoordinatorClient("127.0.0.1:1").Status().status().code(), StatusCode::kUnavailable);
}

TEST_F(GrpcTest, APortThatIsTakenIsAnError) {
  StartServer();
  CoordinatorServerOptions options;
  options.listen = server_->address();
  const auto second = CoordinatorServer::Start(std::move(options));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace heddle::elastic
