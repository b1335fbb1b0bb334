// The plan that the coordinator asks for: the best one, or one that was in force.
#include "elastic/planning/job_planner.h"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/file.h"
#include "elastic/planning/measurement.h"
#include "engine/program/plan.h"

namespace heddle::elastic {
namespace {

constexpr const char* kJob = R"(
name: planned
steps: 3
seed: 1
model:
  model_type: llama
  hidden_size: 16
  intermediate_size: 32
  num_hidden_layers: 4
  num_attention_heads: 2
  num_key_value_heads: 2
  max_position_embeddings: 32
batch: {microbatch: 1, global: 8, sequence: 16}
optimizer: {learning_rate: 1e-3}
workers: [{name: a}, {name: b}]
checkpoint: {every: 0, last: false}
)";

class JobPlannerTest : public testing::Test {
 protected:
  JobPlannerTest() {
    const std::string data = folder_.path() + "/text.txt";
    std::ofstream(data) << std::string(4000, 'x');
    job_.id = "job";
    job_.yaml = kJob + ("data: {text: " + data + "}\n");
  }
  static PlanRequest RequestOf(int64_t generation, double slowdown_of_b) {
    PlanRequest request;
    request.generation = generation;
    for (const char* name : {"a", "b"}) {
      WorkerMeasurement measurement;
      measurement.profile.worker = name;
      measurement.profile.flops_per_second = measurement.profile.bytes_per_second = 1e7;
      measurement.link.link = {
          .latency_seconds = 1e-6, .bytes_per_second = 5e9, .transport = "shm"};
      request.candidates.push_back(
          {.name = name, .host = "host", .profile_json = MeasurementToJson(measurement)});
    }
    request.candidates.back().slowdown = slowdown_of_b;
    return request;
  }

  const TemporaryFolder folder_;
  Job job_;
  JobPlanner planner_;
};

TEST_F(JobPlannerTest, APlanThatWasInForceIsFoundAgainAlsoWhereAnotherIsBetter) {
  const PlanOutcome former = planner_.Plan(job_, RequestOf(1, 1));
  ASSERT_TRUE(former.status.ok()) << former.status.ToString();
  PlanRequest request = RequestOf(3, 4);
  request.current_plan_json = former.plan_json;
  request.current_runs = true;
  const PlanOutcome best = planner_.Plan(job_, request);
  request.former_plan_json = former.plan_json;
  const PlanOutcome again = planner_.Plan(job_, request);
  ASSERT_TRUE(again.status.ok()) << again.status.ToString();
  const auto plan = program::PlanFromJson(again.plan_json);
  EXPECT_EQ(plan->pipelines, program::PlanFromJson(former.plan_json)->pipelines);
  EXPECT_EQ(plan->generation, 3);
  EXPECT_NE(plan->pipelines, program::PlanFromJson(best.plan_json)->pipelines);
  EXPECT_GT(again.predicted_step_seconds, best.predicted_step_seconds);
  EXPECT_EQ(again.predicted_step_seconds, again.current_step_seconds) << "as workers are now";
}

TEST_F(JobPlannerTest, APlanThatIsNoneIsRefused) {
  PlanRequest request = RequestOf(3, 1);
  request.former_plan_json = "{}";
  EXPECT_FALSE(planner_.Plan(job_, request).status.ok());
}

TEST_F(JobPlannerTest, APlanInForceThatIsNotOfThisModelIsRefused) {
  const PlanOutcome former = planner_.Plan(job_, RequestOf(1, 1));
  ASSERT_TRUE(former.status.ok()) << former.status.ToString();
  program::Plan plan = *program::PlanFromJson(former.plan_json);
  plan.pipelines.front().stages.back().last_segment += 1;
  PlanRequest request = RequestOf(3, 4);
  request.current_plan_json = program::PlanToJson(plan);
  const Status refused = planner_.Plan(job_, request).status;
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(refused.message().starts_with("the plan in force: ")) << refused.ToString();
}

TEST_F(JobPlannerTest, AJobWhoseStagesAreGroupsIsPlannedAndKeepsItsGroups) {
  const std::string exact = job_.yaml;
  job_.id = "groups";
  job_.yaml += "determinism: relaxed\nparallel: {tensor: 2}\n";
  const PlanOutcome first = planner_.Plan(job_, RequestOf(1, 1));
  ASSERT_TRUE(first.status.ok()) << first.status.ToString();
  const program::Plan plan = *program::PlanFromJson(first.plan_json);
  ASSERT_FALSE(plan.layouts.empty());
  for (const program::Pipeline& pipeline : plan.pipelines) {
    for (const program::Stage& stage : pipeline.stages) {
      EXPECT_EQ(stage.group.size(), 2U);
    }
  }
  EXPECT_EQ(first.program_hashes.size(), 2U);
  std::set<int32_t> numbers;
  for (const std::vector<int32_t>& held : first.parameters) {
    numbers.insert(held.begin(), held.end());
  }
  EXPECT_EQ(std::ssize(numbers), first.parameter_count);
  EXPECT_EQ(*numbers.rbegin(), first.parameter_count - 1);
  PlanRequest request = RequestOf(2, 1);
  request.current_plan_json = first.plan_json;
  const PlanOutcome second = planner_.Plan(job_, request);
  ASSERT_TRUE(second.status.ok()) << second.status.ToString();
  job_.id = "exact";
  job_.yaml = exact;
  request.former_plan_json = first.plan_json;
  request.current_plan_json.clear();
  EXPECT_EQ(
      planner_.Plan(job_, request).status.message(),
      "plan: pipeline 0 stage 0: sums over a group of 2 workers are relaxed, the plan is exact");
}

}  // namespace
}  // namespace heddle::elastic
