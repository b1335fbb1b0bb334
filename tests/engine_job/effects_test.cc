// What a job says that is honoured otherwise than it may seem. What is refused is in
// tests/integration/bad_input_test.py.
#include "engine/job/effects.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/plan.h"

namespace heddle::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobConfig JobWith(const std::string& more) {
  const auto job = ParseJob(R"(
steps: 2
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}
data: {text: prose.txt}
batch: {microbatch: 2, global: 4, sequence: 16}
optimizer: {learning_rate: 1e-3}
)" + more,
                            "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status().ToString();
  return job.ok() ? *job : JobConfig();
}

TEST(EffectsTest, AnOrdinaryJobWarnsOfNothing) {
  const JobConfig job = JobWith("workers: [{name: a}, {name: b}]\ncheckpoint: {every: 1}");
  EXPECT_THAT(StartWarnings(job), IsEmpty());
  EXPECT_THAT(SubmitWarnings(job), IsEmpty());
}

TEST(EffectsTest, WhatIsRoundedOrKeptByOneIsSaid) {
  const std::string checkpoint = "checkpoint: {every: 1, moments: bf16, replicas: {every: 1}}\n";
  EXPECT_THAT(StartWarnings(JobWith(checkpoint + "workers: [{name: a}]")),
              ElementsAre(HasSubstr("moments"), HasSubstr("replicas")));
  EXPECT_THAT(StartWarnings(JobWith(checkpoint + "workers: [{name: a}, {name: b}]")),
              ElementsAre(HasSubstr("moments")));
}

// All workers may be told to end: then a checkpoint is written all the same.
TEST(EffectsTest, HowCheckpointsAreWrittenCountsWhereOnlyASignalMakesThem) {
  JobWith(
      "checkpoint: {last: false, background: false, moments: bf16, keep: {last: 1, every: 10}}");
  JobWith("elastic: {recover_from: checkpoint}");
}

TEST(EffectsTest, WorkersOfAPlanThatTheJobDoesNotNameAreSaid) {
  JobConfig job = JobWith("workers: [{name: a}, {name: b}]");
  job.plan = program::SingleWorkerPlan("a", 3, 2);
  EXPECT_THAT(StartWarnings(job), IsEmpty());
  job.plan = program::SingleWorkerPlan("c", 3, 2);
  EXPECT_THAT(StartWarnings(job), ElementsAre(HasSubstr("its worker c is not")));
}

TEST(EffectsTest, WhatOnlyTrainHonoursIsSaidToWhoSubmits) {
  EXPECT_THAT(SubmitWarnings(JobWith("elastic: {restart: true}\nmetrics: {port: 9000}")),
              ElementsAre(HasSubstr("elastic.restart"), HasSubstr("metrics.port")));
}

}  // namespace
}  // namespace heddle::job
