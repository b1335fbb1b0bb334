/// \file
/// Goal: what workers send each other lies in memory that is registered with their device, once a
/// slab; a device that registers none computes the same; and no registration outlives its slab.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/program/memory.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/shared_tensors.h"
#include "metrics/registry.h"
#include "tests/engine_runtime/device/kept_promises.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/graph/layouts.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr int64_t kLarge = program::kLeastSharedBytes;  ///< Elements: more than the least bytes.

graph::TensorType Floats(int64_t count) {
  return {.dtype = DType::kF32, .shape = {count}};
}

class SlabsTest : public ::testing::Test {
 protected:
  SlabsTest() {
    auto endpoint = comm::Endpoint::Create(
        {.config = {.worker = "a", .job = "job", .secret = "s"}, .metrics = &registry_});
    EXPECT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    endpoint_ = *std::move(endpoint);
  }

  metrics::Registry registry_;
  std::unique_ptr<comm::Endpoint> endpoint_;
};

TEST_F(SlabsTest, EachIsRegisteredOnceAndUntilItGoes) {
  FakeDevice device({.seed = heddle::testing::TestSeed()});
  auto tensors = std::make_unique<SharedTensors>(*endpoint_, device);
  EXPECT_EQ(device.host_memory().registered(), 0);
  constexpr int64_t kElements = int64_t{3} << 20;  // 12 MiB: one in a slab.
  at::Tensor one = tensors->Empty(Floats(kElements));
  EXPECT_EQ(device.host_memory().registered(), 1);
  const at::Tensor small = tensors->Empty(Floats(kLarge));
  EXPECT_EQ(device.host_memory().registered(), 1) << "in the rest of the slab";
  at::Tensor other = tensors->Empty(Floats(kElements));
  EXPECT_EQ(device.host_memory().registered(), 2);
  one.reset();
  one = tensors->Empty(Floats(kElements));
  EXPECT_EQ(device.host_memory().registered(), 2) << "it serves again";
  // The copies alone keep the slabs.
  device.Upload(std::move(one));
  const Mark down = device.DownloadInto(device.Empty(Floats(kElements)), std::move(other));
  tensors.reset();
  const_cast<at::Tensor&>(small).reset();
  EXPECT_EQ(device.host_memory().registered(), 2);
  EXPECT_TRUE(down.Wait(After(kPatience)).ok());
  EXPECT_TRUE(device.Drain(After(kPatience)).ok());
  EXPECT_EQ(device.host_memory().registered(), 0);
  EXPECT_EQ(device.host_memory().pageable_copies(), 0);
  EXPECT_THAT(device.violations(), IsEmpty());
}

TEST_F(SlabsTest, SmallTensorsAndThoseWithoutASlabAreTheDevicesBuffers) {
  FakeDevice device({});
  SharedTensors tensors(*endpoint_, device);
  device.Upload(tensors.Empty(Floats(10)));
  EXPECT_EQ(device.host_memory().registered(), 0);
  EXPECT_TRUE(device.Drain(After(kPatience)).ok());
  EXPECT_EQ(device.host_memory().pageable_copies(), 0);
}

TEST_F(SlabsTest, ADeviceMayOutliveTheLastTensorOnly) {
  auto device = std::make_unique<FakeDevice>(FakeOptions{});
  auto tensors = std::make_unique<SharedTensors>(*endpoint_, *device);
  const at::Tensor last = tensors->Empty(Floats(kLarge));
  tensors.reset();
  device.reset();
  endpoint_.reset();
  std::memset(last.data_ptr(), 7, last.nbytes());
}

TEST_F(SlabsTest, SlabsThatAreNotRegisteredServe) {
  FakeDevice device({.registers = false});
  SharedTensors tensors(*endpoint_, device);
  const at::Tensor host = tensors.Empty(Floats(kLarge));
  std::memset(host.data_ptr(), 0, host.nbytes());
  const Copied up = device.Upload(host);
  device.Await(up.mark);
  const at::Tensor back = tensors.Empty(Floats(kLarge));
  EXPECT_TRUE(device.DownloadInto(up.tensor, back).Wait(After(kPatience)).ok());
  EXPECT_TRUE(back.equal(host));
  EXPECT_EQ(device.host_memory().pageable_copies(), 2);
  EXPECT_EQ(device.host_memory().registered(), 0);
}

/// A model whose embeddings and whose activations are large enough for slabs.
graph::Graph LargerModel(const graph::ModelConfig& config) {
  auto graph = graph::BuildTrainingGraph(config, {.microbatch_size = 2,
                                                  .sequence_length = 128,
                                                  .compute = DType::kF32,
                                                  .loss_scale = 1.0 / (kMicrobatches * 2 * 128),
                                                  .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  graph->optimizer.slices = 8;
  return *std::move(graph);
}

graph::ModelConfig ConfigOfLarger() {
  return {.vocab_size = 256,
          .hidden_size = 64,
          .intermediate_size = 128,
          .num_hidden_layers = 1,
          .num_attention_heads = 4,
          .num_key_value_heads = 4,
          .max_position_embeddings = 128,
          .tie_word_embeddings = false};
}

struct Case {
  std::string name;
  bool grouped = false;  ///< The two workers run each layer together; else each has all of it.
  bool sequence = false;
  bool divided = false;
  program::Determinism determinism = program::Determinism::kRelaxed;
};

program::Plan PlanOf(const Case& one, const graph::Graph& graph) {
  program::Plan plan;
  plan.generation = 1;
  plan.determinism = one.determinism;
  plan.divides_optimizer = one.divided;
  plan.workers = {"w0", "w1"};
  const auto all = static_cast<int>(graph.segments.size());
  if (one.grouped) {
    plan.layouts.push_back(heddle::testing::LayoutOf(graph, ConfigOfLarger(),
                                                     {.units = {2, 2}, .sequence = one.sequence}));
    plan.pipelines = {{.stages = {{.group = {0, 1}, .last_segment = all, .layout = 0}},
                       .microbatches = kMicrobatches}};
    return plan;
  }
  plan.pipelines = {{.stages = {{.group = {0}, .last_segment = all}}, .microbatches = 2},
                    {.stages = {{.group = {1}, .last_segment = all}},
                     .first_microbatch = 2,
                     .microbatches = kMicrobatches - 2}};
  return plan;
}

class SlabTrainingTest : public ::testing::TestWithParam<Case> {};

TEST_P(SlabTrainingTest, NothingThatIsSentPassesThroughOtherMemory) {
  const graph::Graph graph = LargerModel(ConfigOfLarger());
  const program::Plan plan = PlanOf(GetParam(), graph);
  const Trained processor =
      Train(graph, plan, {.steps = 3, .slabs = true, .make_device = [](int /*rank*/) {
                            return std::make_unique<CpuDevice>();
                          }});
  ASSERT_TRUE(processor.status.ok()) << processor.status.ToString();
  const bool in_slabs = GetParam().determinism == program::Determinism::kRelaxed;
  for (const bool registers : {true, false}) {
    SCOPED_TRACE(registers ? "registered" : "not registered");
    const Trained fake =
        Train(graph, plan,
              {.steps = 3,
               .slabs = true,
               .make_device =
                   [registers](int rank) {
                     return std::make_unique<FakeDevice>(FakeOptions{
                         .seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank),
                         .registers = registers});
                   },
               .after_steps =
                   [&](Device& device) {
                     const auto& own = dynamic_cast<FakeDevice&>(device);
                     EXPECT_EQ(own.host_memory().registered() > 0, registers && in_slabs);
                     EXPECT_EQ(own.host_memory().pageable_copies() > 0, !registers && in_slabs);
                   },
               .look_at = ExpectKeptPromises});
    ASSERT_TRUE(fake.status.ok()) << fake.status.ToString();
    EXPECT_EQ(fake.losses, processor.losses);
    EXPECT_EQ(fake.masters, processor.masters);
  }
}

// A device that does not keep what an upload reads: the slab's piece is another value's too early.
TEST(SlabFaultsTest, APieceThatServesAgainTooEarlyIsSeen) {
  const graph::Graph graph = LargerModel(ConfigOfLarger());
  int64_t seen = 0;
  const Trained trained =
      Train(graph, PlanOf({.name = "group", .grouped = true}, graph),
            {.steps = 2,
             .slabs = true,
             .make_device =
                 [](int rank) {
                   return std::make_unique<FakeDevice>(FakeOptions{
                       .seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank),
                       .fault = Fault::kUploadSourceFreed});
                 },
             .look_at =
                 [&seen](Device& device) {
                   seen += std::ssize(dynamic_cast<FakeDevice&>(device).violations());
                 }});
  EXPECT_GT(seen, 0) << trained.status.ToString();
}

INSTANTIATE_TEST_SUITE_P(
    Plans,
    SlabTrainingTest,
    ::testing::Values(Case{.name = "sums"},
                      Case{.name = "dividedSums", .divided = true},
                      Case{.name = "exactSums", .determinism = program::Determinism::kExact},
                      Case{.name = "group", .grouped = true},
                      Case{.name = "groupSequence", .grouped = true, .sequence = true}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace heddle::runtime::testing
