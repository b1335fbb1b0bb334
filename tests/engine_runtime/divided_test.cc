// Whether the optimizer is divided does not matter: real executors give the same losses and weights bit
// for bit, and each keeps its share of masters and moments alone.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "engine/graph/initialize.h"
#include "engine/graph/models/model.h"
#include "engine/program/lowering/lower.h"
#include "engine/program/slices.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/parameter_state.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime {
namespace {

using testing::Trained;
using testing::TrainingOptions;

class DividedTest : public ::testing::TestWithParam<std::tuple<DType, bool>> {};

Trained Train(const graph::Graph& graph, const program::Plan& plan, bool shm, bool fake) {
  const TrainingOptions options{
      .steps = heddle::testing::Scaled<int64_t>(8, 12, 40),
      .shm = shm,
      .slabs = shm,
      .make_device = [fake](int rank) -> std::unique_ptr<Device> {
        if (fake) {
          return std::make_unique<testing::FakeDevice>(testing::FakeOptions{
              .seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank)});
        }
        return std::make_unique<CpuDevice>();
      }};
  Trained trained = testing::Train(graph, plan, options);
  EXPECT_TRUE(trained.status.ok()) << trained.status.ToString();
  return trained;
}

TEST_P(DividedTest, LossesAndWeightsAreThoseOfWholeOptimizers) {
  const auto [compute, fake] = GetParam();
  graph::Graph graph = testing::SmallModel(graph::ModelFamily::kLlama, compute, 0);
  graph.optimizer.slices = 64;
  graph.optimizer.max_gradient_norm = 0.5;  // Every step is clipped: weights depend on the norm.
  const Trained single =
      Train(graph, program::SingleWorkerPlan("w0", testing::kSegments, testing::kMicrobatches),
            true, fake);
  bool shm = true;
  for (auto [name, plan] : testing::UnlikePlans()) {
    SCOPED_TRACE(name);
    plan.divides_optimizer = true;
    const Trained divided = Train(graph, plan, shm, fake);
    shm = !shm;
    EXPECT_EQ(divided.losses, single.losses);
    EXPECT_EQ(divided.masters, single.masters);
  }
}

TEST(DividedStateTest, ThreeWorkersKeepAThirdEach) {
  graph::Graph graph = testing::SmallModel(graph::ModelFamily::kLlama, DType::kBF16, 0);
  graph.optimizer.slices = 64;
  program::Plan plan = testing::UnlikePlans().back().second;
  plan.divides_optimizer = true;
  const auto programs = program::LowerAll(graph, plan);
  ASSERT_TRUE(programs.ok()) << programs.status().ToString();
  CpuDevice device;
  std::vector<int64_t> kept(graph.parameters.size(), 0);
  for (const program::Program& program : *programs) {
    ParameterState state(graph, device);
    ASSERT_TRUE(state.Hold(program).ok());
    ASSERT_TRUE(state.Initialize(1).ok());
    for (const graph::ParameterId id : state.parameters()) {
      const Shape& shape = graph.parameter(id).shape;
      EXPECT_EQ(state.BoxOf(id), WholeBox(shape)) << "the compute copy is whole";
      int64_t rows = 0;
      for (const Box& box : state.KeptOf(id)) {
        rows += box.extent[0];
        std::vector<std::byte> bytes(static_cast<size_t>(ElementCount(box.extent)) * 4);
        EXPECT_TRUE(state.Read(id, program::StateRole::kExpAvg, box, bytes).ok());
      }
      kept[static_cast<size_t>(id)] += rows;
      if (shape.size() > 1) {  // To a slice and a row.
        EXPECT_LE(rows, shape[0] / 3 + shape[0] / 64 + 1) << graph.parameter(id).name;
      }
    }
  }
  for (size_t p = 0; p < kept.size(); ++p) {
    const Shape& shape = graph.parameters[p].shape;
    EXPECT_EQ(kept[p], shape.size() > 1 ? shape[0] : 3 * shape[0]) << graph.parameters[p].name;
  }
}

// Matrices that several threads initialise, each some rows.
TEST(DividedStateTest, InitialValuesAreThoseOfTheirPlaces) {
  const auto graph = graph::BuildTrainingGraph(
      {.hidden_size = 128, .intermediate_size = 512, .num_hidden_layers = 1}, {});
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  CpuDevice device;
  ParameterState state(*graph, device);
  std::vector<graph::ParameterId> all(graph->parameters.size());
  std::iota(all.begin(), all.end(), 0);
  ASSERT_TRUE(state.Hold(all, {}).ok());
  ASSERT_TRUE(state.Initialize(7).ok());
  at::set_num_threads(threads);
  int64_t largest = 0;
  for (const graph::ParameterId id : all) {
    const graph::Parameter& parameter = graph->parameter(id);
    const Box whole = WholeBox(parameter.shape);
    std::vector<float> wanted(static_cast<size_t>(ElementCount(parameter.shape)));
    largest = std::max(largest, std::ssize(wanted));
    graph::InitializeParameter(parameter, 7, whole, wanted);
    std::vector<float> found(wanted.size());
    ASSERT_TRUE(
        state.Read(id, program::StateRole::kMaster, whole, std::as_writable_bytes(std::span(found)))
            .ok());
    EXPECT_EQ(found, wanted) << parameter.name;
  }
  EXPECT_GE(largest, int64_t{1} << 16) << "no matrix is large enough for several threads";
}

INSTANTIATE_TEST_SUITE_P(Types,
                         DividedTest,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16),
                                            ::testing::Bool()),
                         [](const auto& parameter) {
                           return std::string(DTypeName(std::get<0>(parameter.param))) +
                                  (std::get<1>(parameter.param) ? "_fake" : "_processor");
                         });

}  // namespace
}  // namespace heddle::runtime
