// Plans and profiles as JSON: round trips, and one clear error for everything that does not fit.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/plan.h"
#include "engine/program/profile.h"
#include "tests/support/graph/random_graph.h"
#include "tests/support/graph/random_plan.h"
#include "tests/support/seed.h"

namespace heddle::program {
namespace {

using ::testing::HasSubstr;

void ExpectEqual(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.workers, b.workers);
  EXPECT_EQ(a.pipelines, b.pipelines);
  EXPECT_EQ(a.layouts, b.layouts);
  EXPECT_EQ(a.determinism, b.determinism);
  EXPECT_EQ(a.predicted_step_seconds, b.predicted_step_seconds);
  EXPECT_EQ(a.predicted_peak_bytes, b.predicted_peak_bytes);
  EXPECT_EQ(a.predicted_process_bytes, b.predicted_process_bytes);
  EXPECT_EQ(a.transports, b.transports);
}

TEST(PlanJsonTest, RandomPlansSurviveARoundTrip) {
  for (const uint64_t seed : testing::TestSeeds(100)) {
    HEDDLE_TRACE_SEED(seed);
    Plan plan = testing::RandomPlan(seed, 6);
    plan.determinism = seed % 2 == 0 ? Determinism::kExact : Determinism::kRelaxed;
    plan.predicted_step_seconds = 0.1 * static_cast<double>(seed % 1000) / 3;
    plan.predicted_peak_bytes.assign(plan.workers.size(), static_cast<int64_t>(seed) << 20);
    if (seed % 3 != 0) {
      plan.predicted_process_bytes.assign(plan.workers.size(), static_cast<int64_t>(seed) << 21);
    }
    plan.transports.assign(plan.workers.size(),
                           std::vector<std::string>(plan.workers.size(), "shm"));
    const Result<Plan> read = PlanFromJson(PlanToJson(plan));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    ExpectEqual(plan, *read);
  }
}

TEST(PlanJsonTest, GroupsAndLayoutsSurviveARoundTrip) {
  std::set<std::string_view> placements;
  for (const uint64_t seed : testing::TestSeeds(50)) {
    HEDDLE_TRACE_SEED(seed);
    const Plan plan = testing::RandomGroupPlan(seed, testing::RandomGraph(seed, DType::kF32));
    const std::string text = PlanToJson(plan);
    const Result<Plan> read = PlanFromJson(text);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    ExpectEqual(plan, *read);
    EXPECT_EQ(PlanToJson(*read), text);
    for (const std::string_view placement : {"\"shard\"", "\"cover\"", "\"group\"", "\"worker\""}) {
      if (text.find(placement) != std::string::npos) {
        placements.insert(placement);
      }
    }
  }
  EXPECT_EQ(placements.size(), 4U) << "the plans are worth it";
}

constexpr const char* kPlan = R"({
  "generation": 3,
  "workers": ["a", "b"],
  "pipelines": [{"stages": [{"worker": 0, "first_segment": 0, "last_segment": 4,
                             "recompute": false, "ahead": 0}],
                 "first_microbatch": 0, "microbatches": 2}],
  "determinism": "exact",
  "predicted_step_seconds": 0.5,
  "predicted_peak_bytes": [1, 2],
  "transports": [["self", "tcp"], ["tcp", "self"]]
})";

TEST(PlanJsonTest, ReadsAWrittenPlan) {
  const Result<Plan> plan = PlanFromJson(kPlan);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->generation, 3);
  EXPECT_EQ(plan->pipelines[0].stages[0].last_segment, 4);
  EXPECT_EQ(plan->transports[0][1], "tcp");
}

struct BadText {
  const char* name;
  const char* from;  ///< Text of the good example that is replaced …
  const char* to;    ///< … by this.
  const char* message;
};

class BadPlanJsonTest : public ::testing::TestWithParam<BadText> {};

TEST_P(BadPlanJsonTest, IsRefusedNamingTheKey) {
  std::string text = kPlan;
  const size_t position = text.find(GetParam().from);
  ASSERT_NE(position, std::string::npos);
  text.replace(position, std::string_view(GetParam().from).size(), GetParam().to);
  const Result<Plan> plan = PlanFromJson(text);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plan.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BadPlanJsonTest,
    ::testing::Values(
        BadText{"Syntax", "{", "{,", "plan: not JSON"},
        BadText{"NotUtf8", "\"a\"", "\"\xff\"", "plan: not JSON"},
        BadText{"NotAnObject", kPlan, "[]", "plan: expected an object, got []"},
        BadText{"Empty", kPlan, "", "plan: not JSON"},
        BadText{"UnknownKey", "\"generation\": 3", "\"generation\": 3, \"x\": 1",
                "plan.x: unknown"},
        BadText{"MissingKey", "\"generation\": 3,", "", "plan.generation: missing"},
        BadText{"RepeatedKey", "\"generation\": 3", "\"generation\": 3, \"generation\": 4",
                "key 'generation' appears twice"},
        BadText{"NegativeGeneration", "3", "-3", "plan.generation: expected an integer from 0"},
        BadText{"HugeGeneration", "3", "99999999999999999999", "plan.generation: expected"},
        BadText{"FractionalGeneration", "3", "3.5", "plan.generation: expected an integer"},
        BadText{"NameType", "\"b\"", "7", "plan.workers[1]: expected a text, got 7"},
        BadText{"WorkersType", "[\"a\", \"b\"]", "{}", "plan.workers: expected a list"},
        BadText{"StageKey", "\"recompute\"", "\"recomputed\"",
                "plan.pipelines[0].stages[0].recompute: missing"},
        BadText{"StageType", "\"recompute\": false", "\"recompute\": 0",
                "plan.pipelines[0].stages[0].recompute: expected true or false, got 0"},
        BadText{"NegativeAhead", "\"ahead\": 0", "\"ahead\": -1",
                "plan.pipelines[0].stages[0].ahead: expected an integer from 0"},
        BadText{"StageRange", "\"worker\": 0", "\"worker\": 4294967296",
                "plan.pipelines[0].stages[0].worker: expected an integer from 0 to 2147483647"},
        BadText{"Determinism", "\"exact\"", "\"loose\"", "plan.determinism: expected \"exact\""},
        BadText{"NegativeSeconds", "0.5", "-0.5", "plan.predicted_step_seconds: expected"},
        BadText{"HugeSeconds", "0.5", "1e999", "plan"},
        BadText{"NegativeBytes", "[1, 2]", "[1, -2]", "plan.predicted_peak_bytes[1]: expected"},
        BadText{"TransportType", "[\"tcp\", \"self\"]", "3", "plan.transports[1]: expected a list"},
        BadText{"Deep", "[1, 2]", "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
                "nested deeper than"}),
    [](const ::testing::TestParamInfo<BadText>& parameter) { return parameter.param.name; });

constexpr const char* kGroupPlan = R"({
  "generation": 3,
  "workers": ["a", "b", "c"],
  "pipelines": [{"stages": [{"group": [2, 0], "layout": 0, "first_segment": 0, "last_segment": 4,
                             "recompute": false, "ahead": 0}],
                 "first_microbatch": 0, "microbatches": 2}],
  "layouts": [{"cuts": [[3, 1]],
               "tensors": {"q": {"placement": "shard", "dim": 1, "unit": 4, "cut": 0},
                           "k": {"placement": "cover", "dim": 0, "unit": 4, "cut": 0, "covered": 8},
                           "n": {"placement": "replicate"}}}],
  "determinism": "relaxed",
  "predicted_step_seconds": 0.5,
  "predicted_peak_bytes": [],
  "transports": []
})";

TEST(PlanJsonTest, ReadsGroupsAndLayouts) {
  const Result<Plan> plan = PlanFromJson(kGroupPlan);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->pipelines[0].stages[0].group, (Group{2, 0}));
  EXPECT_EQ(plan->pipelines[0].stages[0].layout, 0);
  const graph::Layout expected = {
      .cuts = {{.units = {3, 1}}},
      .tensors = {{"q", {.placement = graph::Placement::Shard(1, 4)}},
                  {"k", {.placement = graph::Placement::Cover(0, 4), .covered = 8}},
                  {"n", {.placement = graph::Placement::Replicate()}}}};
  EXPECT_EQ(plan->layouts, std::vector<graph::Layout>{expected});
}

TEST(PlanJsonTest, EveryFaultOfAGroupIsNamedByItsKey) {
  const std::string stage = "plan.pipelines[0].stages[0].";
  const std::string integer = ": expected an integer from 0 to 2147483647, got ";
  const std::string tensors = "plan.layouts[0].tensors.";
  struct Fault {
    std::string from;
    std::string to;
    std::string message;
  };
  for (const Fault& fault : std::vector<Fault>{
           {"\"group\": [2, 0]", "\"group\": [2, 0], \"worker\": 1", stage + "worker: unknown key"},
           {"\"group\": [2, 0]", "\"worker\": 1", stage + "layout: unknown key"},
           {"\"layout\": 0,", "", stage + "layout: missing"},
           {"[2, 0]", "[2, -1]", stage + "group[1]" + integer + "-1"},
           {"[2, 0]", "2", stage + "group: expected a list, got 2"},
           {"\"layout\": 0", "\"layout\": -1", stage + "layout" + integer + "-1"},
           {"\"layouts\": [", "\"layouts\": 7, \"more\": [",
            "plan.layouts: expected a list, got 7"},
           {"[[3, 1]]", "[3, 1]", "plan.layouts[0].cuts[0]: expected a list, got 3"},
           {"[[3, 1]]", "[[3, 1.5]]", "plan.layouts[0].cuts[0][1]" + integer + "1.5"},
           {"\"cuts\"", "\"cut\"", "plan.layouts[0].cuts: missing"},
           {"\"shard\"", "\"partial\"",
            tensors + R"(q.placement: expected "replicate", "shard" or "cover", got "partial")"},
           {"\"dim\": 1, ", "", tensors + "q.dim: missing"},
           {"\"unit\": 4", "\"unit\": 0",
            tensors + "q.unit: expected an integer from 1 to 9223372036854775807, got 0"},
           {"\"cut\": 0}", "\"cut\": 0, \"covered\": 8}", tensors + "q.covered: unknown key"},
           {", \"covered\": 8", "", tensors + "k.covered: missing"},
           {"\"replicate\"", "\"replicate\", \"dim\": 0", tensors + "n.dim: unknown key"},
           {"{\"placement\": \"replicate\"}", "1", tensors + "n: expected an object, got 1"}}) {
    std::string text = kGroupPlan;
    const size_t position = text.find(fault.from);
    ASSERT_NE(position, std::string::npos) << fault.from;
    text.replace(position, fault.from.size(), fault.to);
    EXPECT_EQ(PlanFromJson(text).status().message(), fault.message);
  }
}

TEST(PlanJsonTest, EveryTruncationIsRefused) {
  for (const std::string_view text : {kPlan, kGroupPlan}) {
    for (size_t size = 0; size < text.size(); ++size) {
      EXPECT_FALSE(PlanFromJson(text.substr(0, size)).ok()) << size;
    }
  }
}

WorkerProfile Example() {
  WorkerProfile profile;
  profile.worker = "w0";
  profile.seconds = {{"linear(fp32[2, 4], fp32[4, 4]){}", 1.0 / 3}, {"fold", 2.5e-11}};
  profile.flops_per_second = 1.25e11;
  profile.bytes_per_second = 7e9;
  profile.instruction_seconds = 3e-6;
  profile.memory_bytes = int64_t{5} << 33;
  return profile;
}

TEST(ProfileJsonTest, SurvivesARoundTrip) {
  const Result<WorkerProfile> read = ProfileFromJson(ProfileToJson(Example()));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->worker, Example().worker);
  EXPECT_EQ(read->seconds, Example().seconds);
  EXPECT_EQ(read->flops_per_second, Example().flops_per_second);
  EXPECT_EQ(read->bytes_per_second, Example().bytes_per_second);
  EXPECT_EQ(read->instruction_seconds, Example().instruction_seconds);
  EXPECT_EQ(read->memory_bytes, Example().memory_bytes);
}

TEST(ProfileJsonTest, NamesTheBadMember) {
  std::string text = ProfileToJson(Example());
  const std::string good = "2.5e-11";
  text.replace(text.find(good), good.size(), "\"fast\"");
  const Result<WorkerProfile> read = ProfileFromJson(text);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.status().message(),
            "profile.seconds.fold: expected a number of at least 0, got \"fast\"");
}

}  // namespace
}  // namespace heddle::program
