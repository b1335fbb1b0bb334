/// \file
/// The plan does not matter: real executors, one thread a worker, over real transports, give the
/// same losses and the same final weights bit for bit whatever the plan, in fp32 and bf16.
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "comm/communicator.h"
#include "engine/graph/models/model.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/verify/verify.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/executor.h"
#include "tests/support/tier.h"

namespace heddle::runtime {
namespace {

constexpr int kMicrobatches = 6;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t Steps() {
  return 12;
}  // A step takes ten times as long.
#else
int64_t Steps() {
  return testing::Scaled<int64_t>(20, 20, 60);
}
#endif

struct RunResult {
  std::vector<double> losses;
  std::map<std::string, std::vector<std::byte>> masters;
};

Status ReadRandomSample(int64_t sample, std::span<int32_t> tokens, std::span<int32_t> targets) {
  const uint64_t key = StreamKey(7, "sample");
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(Philox(key, static_cast<uint64_t>(sample), i)[0] % 97);
    targets[i] = (tokens[i] * 3 + 1) % 97;  // A rule that can be learnt: the loss must fall.
  }
  return Status::Ok();
}

graph::Graph SmallModel(graph::ModelFamily family, DType compute, double dropout) {
  const graph::ModelConfig config{
      .family = family,
      .vocab_size = 97,
      .hidden_size = 32,
      .intermediate_size = 48,
      .num_hidden_layers = 3,
      .num_attention_heads = 4,
      .num_key_value_heads = family == graph::ModelFamily::kLlama ? 2 : 4,
      .max_position_embeddings = 16,
      .tie_word_embeddings = true,
      .dropout = dropout};
  const auto graph =
      graph::BuildTrainingGraph(config, {.microbatch_size = 2,
                                         .sequence_length = 16,
                                         .compute = compute,
                                         .loss_scale = 1.0 / (kMicrobatches * 2 * 16),
                                         .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *graph;
}

// Trains under `plan` with one thread a worker; fails the test on any error.
RunResult Train(const graph::Graph& graph, const program::Plan& plan, bool shm) {
  const int workers = static_cast<int>(plan.workers.size());
  const auto programs = program::LowerAll(graph, plan);
  EXPECT_TRUE(programs.ok()) << programs.status().ToString();
  const Status verified = program::Verify(graph, plan, *programs);
  EXPECT_TRUE(verified.ok()) << verified.ToString();

  std::vector<std::unique_ptr<metrics::Registry>> registries;
  std::vector<std::unique_ptr<comm::Endpoint>> endpoints;
  std::vector<comm::GroupMember> members;
  for (int rank = 0; rank < workers; ++rank) {
    registries.push_back(std::make_unique<metrics::Registry>());
    const std::string& name = plan.workers[static_cast<size_t>(rank)];
    auto endpoint = comm::Endpoint::Create(
        {.config = {.worker = name, .job = "test", .secret = "secret"},
         .open = shm ? std::vector<std::string>() : std::vector<std::string>{"verbs", "tcp"},
         .metrics = registries.back().get()});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    members.push_back(
        {.name = plan.workers[static_cast<size_t>(rank)], .address = (*endpoint)->address()});
    endpoints.push_back(*std::move(endpoint));
  }

  RunResult result;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      SetThreads(1);
      const program::Program& program = (*programs)[static_cast<size_t>(rank)];
      auto group = endpoints[static_cast<size_t>(rank)]->Connect(
          {.generation = 1, .rank = rank, .members = members, .peers = program.peers},
          After(std::chrono::seconds(20)));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      ParameterState state(graph);
      state.Hold(program.parameters);
      state.Initialize(3);
      DeviceClock clock(1);
      Executor executor({.graph = &graph,
                         .program = &program,
                         .state = &state,
                         .group = group->get(),
                         .clock = &clock,
                         .read_sample = ReadRandomSample,
                         .seed = 3,
                         .microbatches = kMicrobatches});
      for (int64_t step = 1; step <= Steps(); ++step) {
        const Status status = executor.ComputeGradients(step, (step - 1) * kMicrobatches * 2);
        ASSERT_TRUE(status.ok()) << status.ToString();
        const auto outcome = executor.Vote(step);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        executor.Apply(step, outcome->gradient_norm, 3e-3);
        if (rank == 0) {
          result.losses.push_back(outcome->loss);
        }
      }
      const std::lock_guard<std::mutex> lock(mutex);
      for (const graph::ParameterId id : state.parameters()) {
        const auto bytes = state.BytesOf(id, program::StateRole::kMaster);
        std::vector<std::byte> copy(bytes.begin(), bytes.end());
        const auto [entry, inserted] = result.masters.emplace(graph.parameter(id).name, copy);
        EXPECT_TRUE(inserted || entry->second == copy)
            << "holders of " << graph.parameter(id).name << " differ";
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return result;
}

// Segments of the model: embedding, three layers of two, head: 8.
program::Plan MakePlan(std::vector<program::Pipeline> pipelines, int workers) {
  program::Plan plan;
  plan.generation = 1;
  for (int i = 0; i < workers; ++i) {
    plan.workers.push_back(fmt::format("w{}", i));
  }
  plan.pipelines = std::move(pipelines);
  return plan;
}

std::vector<std::pair<std::string, program::Plan>> UnlikePlans() {
  using program::Stage;
  return {
      {"two pipelines of unlike depth",
       MakePlan({{.stages = {Stage{.worker = 0, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 0,
                  .microbatches = 1},
                 {.stages = {Stage{.worker = 2, .first_segment = 0, .last_segment = 3},
                             Stage{.worker = 1, .first_segment = 3, .last_segment = 8}},
                  .first_microbatch = 1,
                  .microbatches = 5}},
                3)},
      {"four stages cut inside layers",
       MakePlan({{.stages = {Stage{.worker = 3, .first_segment = 0, .last_segment = 2, .ahead = 1},
                             Stage{.worker = 1, .first_segment = 2, .last_segment = 3},
                             Stage{.worker = 2, .first_segment = 3, .last_segment = 6},
                             Stage{.worker = 0, .first_segment = 6, .last_segment = 8}},
                  .first_microbatch = 0,
                  .microbatches = 6}},
                4)},
      {"three pipelines, one worker idle, one recomputes",
       MakePlan({{.stages = {Stage{
                      .worker = 0, .first_segment = 0, .last_segment = 8, .recompute = true}},
                  .first_microbatch = 0,
                  .microbatches = 3},
                 {.stages = {Stage{.worker = 1, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 3,
                  .microbatches = 2},
                 {.stages = {Stage{.worker = 3, .first_segment = 0, .last_segment = 8}},
                  .first_microbatch = 5,
                  .microbatches = 1}},
                4)},
  };
}

class PlanInvarianceTest : public ::testing::TestWithParam<std::tuple<graph::ModelFamily, DType>> {
};

TEST_P(PlanInvarianceTest, LossesAndWeightsAreBitEqualUnderUnlikePlans) {
  const auto [family, compute] = GetParam();
  const graph::Graph graph =
      SmallModel(family, compute, family == graph::ModelFamily::kGpt2 ? 0.1 : 0.0);
  const RunResult single = Train(graph, program::SingleWorkerPlan("w0", 8, kMicrobatches), true);
  ASSERT_EQ(single.losses.size(), static_cast<size_t>(Steps()));
  EXPECT_LT(single.losses.back(), single.losses.front());
  bool shm = true;
  for (const auto& [name, plan] : UnlikePlans()) {
    SCOPED_TRACE(name);
    const RunResult other = Train(graph, plan, shm);
    shm = !shm;
    ASSERT_EQ(other.losses.size(), single.losses.size());
    for (size_t i = 0; i < single.losses.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>(single.losses[i]), std::bit_cast<uint64_t>(other.losses[i]))
          << "step " << i + 1;
    }
    EXPECT_EQ(single.masters, other.masters);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    PlanInvarianceTest,
    ::testing::Combine(::testing::Values(graph::ModelFamily::kLlama, graph::ModelFamily::kGpt2),
                       ::testing::Values(DType::kF32, DType::kBF16)),
    [](const auto& parameter) {
      return fmt::format(
          "{}{}", std::get<0>(parameter.param) == graph::ModelFamily::kLlama ? "Llama" : "Gpt2",
          DTypeName(std::get<1>(parameter.param)));
    });

}  // namespace
}  // namespace heddle::runtime
