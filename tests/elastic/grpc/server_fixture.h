/// \file
/// The fixture of a coordinator with real sockets, and of workers in threads of the test.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/file.h"
#include "elastic/grpc/client.h"
#include "elastic/grpc/server.h"
#include "elastic/store/ordered_store.h"
#include "fake_worker.h"

namespace heddle::elastic {

// A store that checks that the log was durable up to the known step before each save.
class WatchedStore : public StateStore {
 public:
  WatchedStore(std::unique_ptr<StateStore> store, const std::atomic<int64_t>& synced)
      : store_(std::move(store)),
        synced_(synced) {}
  Result<std::optional<DurableState>> Load() override { return store_->Load(); }
  Status Save(const DurableState& state) override {
    EXPECT_LE(state.known_step, synced_.load());
    return store_->Save(state);
  }

 private:
  const std::unique_ptr<StateStore> store_;
  const std::atomic<int64_t>& synced_;
};

class GrpcTest : public testing::Test {
 protected:
  void StartServer(const std::string& listen = "127.0.0.1:0") {
    std::unique_ptr<StateStore> store = OpenStore();
    ASSERT_NE(store, nullptr);
    store_ = std::make_unique<OrderedStore>(
        std::make_unique<WatchedStore>(std::move(store), synced_step_), [this] {
          synced_step_ = logged_step_.load();
          return Status::Ok();
        });
    CoordinatorServerOptions options;
    options.listen = listen;
    options.credentials = credentials_;
    options.issuer = issuer_;
    SetGuardHooks(options.hooks);
    options.store = store_.get();
    options.hooks.read_job = [this](const std::string& yaml, const std::string& /*path*/,
                                    JobOrigin /*origin*/) -> Result<Job> {
      if (yaml != "job") {
        return InvalidArgumentError("no job");
      }
      Job job;
      job.id = "the-job";
      job.yaml = yaml;
      job.policy.total_steps = steps_;
      job.policy.initial_workers = initial_workers_;
      job.used_generation = used_generation_;
      return job;
    };
    options.hooks.plan = [](const Job& /*job*/, const PlanRequest& request,
                            const std::stop_token& /*stop*/) {
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
    auto server = CoordinatorServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
  }

  void SetGuardHooks(CoordinatorHooks& hooks) {
    hooks.refused = [this](std::string_view reason) {
      const MutexLock lock(mutex_);
      ++refused_[std::string(reason)];
    };
    hooks.issued = [this](std::string_view by) {
      const MutexLock lock(mutex_);
      ++issued_[std::string(by)];
      changed_.NotifyAll();
    };
    hooks.certificate = [this](double ends) {
      const MutexLock lock(mutex_);
      certificate_ends_.push_back(ends);
      changed_.NotifyAll();
    };
  }

  virtual std::unique_ptr<StateStore> OpenStore() {
    auto store = OpenSqliteStore(folder_.path() + "/state.sqlite");
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }

  void AddWorker(const std::string& name) { AddWorker(name, ""); }
  void AddWorker(const std::string& name, const std::string& certificates) {
    workers_[name] =
        std::make_unique<FakeWorker>(server_->address(), name, steps_, fabric_, certificates);
  }

  // Ends a worker as if its process were killed: it sends nothing more, and its peers' connections
  // break.
  void KillWorker(const std::string& name) {
    const int64_t generation = workers_.at(name)->generation();
    fabric_.Die(name, generation);
    workers_.erase(name);
  }

  // Waits for a log event that matches; false: none came in time.
  bool WaitFor(const std::function<bool(const LogEvent&)>& match, Duration patience = kPatience) {
    const Deadline deadline = After(patience);
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
  int64_t used_generation_ = 0;
  Credentials credentials_;
  Issuer issuer_;
  Fabric fabric_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<LogEvent> log_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, int> refused_ HEDDLE_GUARDED_BY(mutex_);
  std::map<std::string, int> issued_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<double> certificate_ends_ HEDDLE_GUARDED_BY(mutex_);
  std::atomic<int64_t> logged_step_ = 0;
  std::atomic<int64_t> synced_step_ = 0;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<CoordinatorServer> server_;
  std::map<std::string, std::unique_ptr<FakeWorker>> workers_;
};

}  // namespace heddle::elastic
