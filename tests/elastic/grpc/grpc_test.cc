// The shells with real sockets in one process: a coordinator, workers whose data plane is a table
// in memory, a loss, a join, a drain, a coordinator that is killed and comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server_fixture.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

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
  fabric_.Hurry();
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

TEST(StatusToJsonTest, WhatWasNotMeasuredIsAbsent) {
  wire::JobStatus status;
  wire::JobStatus::Worker& worker = *status.add_workers();
  EXPECT_THAT(StatusToJson(status), Not(HasSubstr("measured_slowdown")));
  worker.set_measured_slowdown(1.5);
  EXPECT_THAT(StatusToJson(status), HasSubstr("\"measured_slowdown\": 1.5"));
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
