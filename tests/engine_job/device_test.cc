// The devices that a job gives to its workers. Words that name none: tests/integration/bad_input_test.py.
#include <string>

#include <gtest/gtest.h>

#include "engine/job/job.h"

namespace heddle::job {
namespace {

constexpr const char* kJob = R"(
steps: 2
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}
data: {text: prose.txt}
batch: {microbatch: 2, global: 4, sequence: 16}
optimizer: {learning_rate: 1e-3}
)";

JobConfig JobWith(const std::string& more) {
  const auto job = ParseJob(kJob + more, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status().ToString();
  return job.ok() ? *job : JobConfig();
}

TEST(JobDeviceTest, WithoutTheKeyEveryWorkerComputesOnTheProcessor) {
  EXPECT_EQ(DeviceOf(JobWith(""), "worker-0"), "cpu");
  const JobConfig job = JobWith("workers: [{name: a}, {name: b}]");
  EXPECT_EQ(DeviceOf(job, "b"), "cpu");
  EXPECT_EQ(DeviceOf(job, "a worker of another machine"), "cpu");
}

TEST(JobDeviceTest, AWorkersOwnDeviceComesBeforeThatOfTheJob) {
  const JobConfig job = JobWith(
      "device: auto\nworkers: [{name: a}, {name: b, device: cuda:1}, {name: c, device: cpu}]");
  EXPECT_EQ(DeviceOf(job, "a"), "auto");
  EXPECT_EQ(DeviceOf(job, "b"), "cuda:1");
  EXPECT_EQ(DeviceOf(job, "c"), "cpu");
  EXPECT_EQ(DeviceOf(job, "joined-later"), "auto");
  EXPECT_EQ(DeviceOf(JobWith("device: cuda"), "worker-0"), "cuda") << "the worker without an entry";
}

}  // namespace
}  // namespace heddle::job
