/// \file
/// What was measured, written and read again: the same figures, and refused where the job is not
/// what was measured.
#include "elastic/planning/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/operator.h"
#include "tests/support/graph/random_graph.h"

namespace heddle::elastic {
namespace {

using ::testing::HasSubstr;

class ProfileFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      MeasuredWorker worker{.worker = name, .measured_at = 1.5e9 + 0.125, .speed = 0.3};
      worker.measurement.profile.worker = name;
      worker.measurement.profile.flops_per_second = 1e9 / 3;
      worker.measurement.profile.bytes_per_second = 2e9 / 7;
      for (const graph::Node& node : graph_.nodes) {
        worker.measurement.profile.seconds[graph::NodeSignature(graph_, node)] = 0.1;
      }
      worker.measurement.link = {
          .latency_seconds = 1e-5 / 3, .bytes_per_second = 1e9, .transport = "tcp"};
      workers_.push_back(worker);
      job::WorkerSection section;
      section.name = name;
      section.emulation.speed = 0.3;
      job_.workers.push_back(section);
    }
    job_.threads = 1;
  }

  std::string Refusal() const {
    const auto workers = WorkersOfJob(workers_, job_, graph_);
    return workers.ok() ? "" : workers.status().message();
  }

  const graph::Graph graph_ = testing::RandomGraph(1, DType::kF32);
  std::vector<MeasuredWorker> workers_;
  job::JobConfig job_;
};

TEST_F(ProfileFileTest, WhatIsReadIsWhatWasWritten) {
  const std::string text = ProfileFileToJson(workers_);
  const auto read = ProfileFileFromJson(text);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ(read->front().measured_at, 1.5e9 + 0.125);
  EXPECT_EQ(read->front().measurement.profile.flops_per_second, 1e9 / 3);
  EXPECT_EQ(read->front().measurement.link.latency_seconds, 1e-5 / 3);
  EXPECT_EQ(ProfileFileToJson(*read), text);
}

TEST_F(ProfileFileTest, TheJobsWorkersComeInItsOrderWithItsMemory) {
  std::swap(job_.workers[0], job_.workers[1]);
  job_.workers[0].emulation.memory_bytes = 77;
  const auto workers = WorkersOfJob(workers_, job_, graph_);
  ASSERT_TRUE(workers.ok()) << workers.status().ToString();
  EXPECT_EQ(workers->at(0).worker, "b");
  EXPECT_EQ(workers->at(0).measurement.profile.memory_bytes, 77);
  EXPECT_EQ(workers->at(1).measurement.profile.memory_bytes, 0);
}

TEST_F(ProfileFileTest, WhatWasMeasuredAsSomethingElseIsRefused) {
  EXPECT_EQ(Refusal(), "");
  job_.workers[1].emulation.speed = 0.5;
  EXPECT_THAT(Refusal(),
              HasSubstr("worker b was measured with emulate.speed 0.3, the job has 0.5"));
  job_.workers[1].emulation.speed = 0.3;
  job_.workers[0].emulation.link_bytes_per_second = 1e6;
  EXPECT_THAT(Refusal(), HasSubstr("worker a was measured with emulate.link"));
  job_.workers[0].emulation.link_bytes_per_second = 0;
  job_.threads = 2;
  EXPECT_THAT(Refusal(), HasSubstr("threads 1, the job has 2"));
  job_.threads = 1;
  workers_[1].measurement.profile.seconds.erase(workers_[1].measurement.profile.seconds.begin());
  EXPECT_THAT(Refusal(), HasSubstr("worker b was measured with another model"));
  workers_.pop_back();
  EXPECT_THAT(Refusal(), HasSubstr("worker b of the job is not in it"));
}

TEST_F(ProfileFileTest, WhatIsNoSuchFileIsRefused) {
  const auto refusal = [](const std::string& text) {
    const auto read = ProfileFileFromJson(text);
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("no profile file"));
  EXPECT_THAT(refusal("{}"), HasSubstr("profile_file"));
  EXPECT_THAT(refusal(R"({"profile_file": 2, "workers": []})"), HasSubstr("profile_file is 2"));
  EXPECT_THAT(refusal(R"({"profile_file": 1, "workers": [{"worker": "a"}]})"),
              HasSubstr("measured_at"));
  EXPECT_THAT(refusal(R"({"profile_file": 1, "workers": )" + std::string(3'000'000, '[')),
              HasSubstr("no profile file"));
  std::string text = ProfileFileToJson(workers_);
  const std::string rate = "\"flops_per_second\": ";
  text.insert(text.find(rate) + rate.size(), "-");
  EXPECT_THAT(refusal(text), HasSubstr("worker a"));
}

}  // namespace
}  // namespace heddle::elastic
