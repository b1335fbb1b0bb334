/// \file
/// Goal: a device computes what the processor computes, the same each time and under every plan,
/// and its errors are named. scripts/device-check runs this on a card; here it runs on the
/// processor and on the fake device, so that the check itself is sound.
#include "tests/engine_runtime/device/check.h"

#include <cmath>
#include <map>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "base/random.h"
#include "engine/graph/operator.h"
#include "engine/runtime/adamw.h"
#include "engine/runtime/compare/operator_runs.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel_registry.h"
#include "engine/runtime/profiler.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kVocabulary = 97;  // Of SmallModel.

graph::Graph Built(const graph::ModelConfig& config,
                   DType compute,
                   int64_t microbatch_size,
                   int64_t length) {
  const auto graph = graph::BuildTrainingGraph(
      config, {.microbatch_size = microbatch_size,
               .sequence_length = length,
               .compute = compute,
               .loss_scale = 1.0 / static_cast<double>(kMicrobatches * microbatch_size * length),
               .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *graph;
}

// The small models, whose heads are of 8, and Llama with the heads of large ones, in groups: a card's
// attention has other code for them.
enum class Kind { kLlama, kGpt2, kHeadsOf64, kHeadsOf128 };

graph::Graph Model(Kind kind, DType compute, int64_t length) {
  switch (kind) {
    case Kind::kLlama:
      return SmallModel(graph::ModelFamily::kLlama, compute, 0.0, length);
    case Kind::kGpt2:
      return SmallModel(graph::ModelFamily::kGpt2, compute, 0.1, length);
    case Kind::kHeadsOf64:
    case Kind::kHeadsOf128:
      break;
  }
  return Built({.family = graph::ModelFamily::kLlama,
                .vocab_size = kVocabulary,
                .hidden_size = 256,
                .intermediate_size = 48,
                .num_hidden_layers = 3,
                .num_attention_heads = kind == Kind::kHeadsOf64 ? 4 : 2,
                .num_key_value_heads = kind == Kind::kHeadsOf64 ? 2 : 1,
                .max_position_embeddings = length,
                .tie_word_embeddings = true},
               compute, 2, length);
}

TEST(DeviceCheck, KeepsToWhatDevicesPromise) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  Note("arithmetic", {{"parts", (*device)->arithmetic()}});
  for (const uint64_t seed : heddle::testing::TestSeeds(3)) {
    EXPECT_THAT(BrokenPromises(**device, seed, CheckedQueue()), IsEmpty()) << "seed " << seed;
  }
}

// Every operator of both models by the device's own kernels, against fp64 on the host.
std::vector<OperatorRun> RunsOf(Device& device, Kind kind, DType compute, int64_t length) {
  auto runs = RunOperators(Model(kind, compute, length), Model(kind, DType::kF64, length),
                           kVocabulary, device);
  EXPECT_TRUE(runs.ok()) << runs.status().ToString();
  return runs.ok() ? *runs : std::vector<OperatorRun>();
}

using ModelAndType = std::tuple<Kind, DType>;

class DeviceCheckModels : public ::testing::TestWithParam<ModelAndType> {};

// An operator of several additions may differ from the plain form of the same precision by a small
// factor, because it adds in another order; a wrong one differs by orders of magnitude.
TEST_P(DeviceCheckModels, OperatorsAreAsExactAsPlainOnes) {
  const auto [kind, compute] = GetParam();
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  for (const int64_t length : {Size(7, 33), Size(24, 512)}) {
    const auto own = RunsOf(**device, kind, compute, length);
    PreferPlainAten(true);
    const auto plain = RunsOf(**device, kind, compute, length);
    PreferPlainAten(false);
    ASSERT_EQ(own.size(), plain.size());
    ASSERT_FALSE(own.empty());
    for (size_t i = 0; i < own.size(); ++i) {
      // Roundings of the coarsest type that the node reads or writes: 2^-24, 2^-9.
      const double rounding = own[i].dtype == DType::kBF16 ? 0x1p-9 : 0x1p-24;
      EXPECT_EQ(own[i].not_finite, 0) << own[i].signature;
      EXPECT_LE(own[i].mean_error, 3 * plain[i].mean_error + rounding) << own[i].signature;
      EXPECT_LE(own[i].largest_error, 4 * plain[i].largest_error + 8 * rounding)
          << own[i].signature;
      Note("operator", {{"operator", own[i].signature},
                        {"output", own[i].output},
                        {"error", own[i].mean_error},
                        {"plain_error", plain[i].mean_error},
                        {"largest_error", own[i].largest_error}});
    }
  }
}

TEST_P(DeviceCheckModels, OperatorsGiveTheSameBitsEachTime) {
  const auto [kind, compute] = GetParam();
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const int64_t length = Size(24, 2048);
  const auto first = RunsOf(**device, kind, compute, length);
  for (int64_t repeat = 0; repeat < Size(1, 3); ++repeat) {
    const auto again = RunsOf(**device, kind, compute, length);
    ASSERT_EQ(again.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(again[i].bits, first[i].bits) << first[i].signature;
    }
  }
}

TEST_P(DeviceCheckModels, LossesAndWeightsAreBitEqualUnderUnlikePlans) {
  const auto [kind, compute] = GetParam();
  const graph::Graph graph = Model(kind, compute, Size(16, 2048));
  const TrainingOptions options{.steps = Size(3, 8),
                                .make_device = [](int /*rank*/) { return *OpenChecked(); }};
  const Trained single =
      Train(graph, program::SingleWorkerPlan("w0", kSegments, kMicrobatches), options);
  ASSERT_TRUE(single.status.ok()) << single.status.ToString();
  Note(
      "losses",
      {{"losses", single.losses}, {"model", static_cast<int>(kind)}, {"type", DTypeName(compute)}});
  auto plans = UnlikePlans();
  plans.emplace_back("again", program::SingleWorkerPlan("w0", kSegments, kMicrobatches));
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(name);
    const Trained other = Train(graph, plan, options);
    ASSERT_TRUE(other.status.ok()) << other.status.ToString();
    EXPECT_EQ(other.losses, single.losses);
    EXPECT_EQ(other.masters, single.masters);
  }
}

// The processor's losses are close: they are computed from the same weights and samples.
TEST_P(DeviceCheckModels, LossesAreCloseToTheProcessors) {
  const auto [kind, compute] = GetParam();
  const graph::Graph graph = Model(kind, compute, 16);
  const program::Plan plan = program::SingleWorkerPlan("w0", kSegments, kMicrobatches);
  const Trained here =
      Train(graph, plan, {.steps = 10, .make_device = [](int /*rank*/) { return *OpenChecked(); }});
  const Trained there = Train(graph, plan, {.steps = 10, .make_device = [](int /*rank*/) {
                                              return std::make_unique<CpuDevice>();
                                            }});
  ASSERT_TRUE(here.status.ok()) << here.status.ToString();
  ASSERT_EQ(here.losses.size(), there.losses.size());
  const double tolerance = compute == DType::kBF16 ? 2e-2 : 1e-4;
  for (size_t i = 0; i < here.losses.size(); ++i) {
    EXPECT_NEAR(here.losses[i], there.losses[i], tolerance * there.losses[i]) << "step " << i + 1;
  }
}

std::string NameOf(const ::testing::TestParamInfo<ModelAndType>& parameter) {
  static const std::map<Kind, std::string> names = {{Kind::kLlama, "Llama"},
                                                    {Kind::kGpt2, "Gpt2"},
                                                    {Kind::kHeadsOf64, "HeadsOf64"},
                                                    {Kind::kHeadsOf128, "HeadsOf128"}};
  const auto [kind, compute] = parameter.param;
  return fmt::format("{}{}", names.at(kind), DTypeName(compute));
}

INSTANTIATE_TEST_SUITE_P(Models,
                         DeviceCheckModels,
                         ::testing::Combine(::testing::Values(Kind::kLlama, Kind::kGpt2),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Heads,
                         DeviceCheckModels,
                         ::testing::Combine(::testing::Values(Kind::kHeadsOf64, Kind::kHeadsOf128),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         NameOf);

// Attention by libtorch would pass all the others, too.
TEST(DeviceCheckAttention, CommonHeadsAreCudnnsWhereTheArithmeticSaysSo) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const Arithmetic arithmetic = (*device)->arithmetic();
  const auto attention = arithmetic.find("attention");
  if (attention == arithmetic.end() || !attention->second.starts_with("cudnn")) {
    GTEST_SKIP() << "no cuDNN computes attention here";
  }
  for (const int64_t head_dim : {64, 128}) {
    EXPECT_TRUE(CudnnTakes(**device, head_dim)) << "heads of " << head_dim;
  }
  Note("attention", {{"heads_of_8", CudnnTakes(**device, 8)}});
}

// A model as people train it; on the processor one of its shape that is small.
graph::Graph LargeModel(DType compute) {
  const graph::ModelConfig config{.family = graph::ModelFamily::kLlama,
                                  .vocab_size = Size(97, 32000),
                                  .hidden_size = Size(32, 768),
                                  .intermediate_size = Size(48, 2048),
                                  .num_hidden_layers = Size(3, 12),
                                  .num_attention_heads = Size(4, 12),
                                  .num_key_value_heads = Size(2, 12),
                                  .max_position_embeddings = Size(16, 1024)};
  return Built(config, compute, Size(2, 8), Size(16, 1024));
}

// It judges no time: the figures are for people. The first steps warm up.
TEST(DeviceCheckSpeed, StepsOfALargeModel) {
  const graph::Graph graph = LargeModel(DType::kBF16);
  const auto segments = static_cast<int>(2 * Size(3, 12) + 2);
  for (const bool plain : {false, true}) {
    PreferPlainAten(plain);
    int64_t memory = 0;
    const Trained trained =
        Train(graph, program::SingleWorkerPlan("w0", segments, kMicrobatches),
              {.steps = plain ? 3 : 12,
               .make_device = [](int /*rank*/) { return *OpenChecked(); },
               .look_at = [&](Device& device) { memory = device.memory_in_use(); }});
    PreferPlainAten(false);
    ASSERT_TRUE(trained.status.ok()) << trained.status.ToString();
    for (const double loss : trained.losses) {
      EXPECT_TRUE(std::isfinite(loss));
    }
    Note("speed", {{"plain", plain},
                   {"tokens_a_step", kMicrobatches * Size(2 * 16, 8 * 1024)},
                   {"seconds", trained.seconds},
                   {"losses", trained.losses},
                   {"memory_bytes_after", memory}});
  }
}

// Values in host memory, of `count` elements between -1 and 1.
at::Tensor Numbers(int64_t count, uint64_t seed) {
  Random random(seed);
  at::Tensor values = at::empty({count}, at::TensorOptions(at::kFloat));
  for (int64_t i = 0; i < count; ++i) {
    values.data_ptr<float>()[i] = static_cast<float>(2 * random.Uniform() - 1);
  }
  return values;
}

TEST(DeviceCheck, UpdatesAndSquaresAreThoseOfFp64) {
  const c10::InferenceMode inference;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const AdamWStep step{.learning_rate = 1e-2, .clip_factor = 0.5, .step = 3, .weight_decay = 0.1};
  for (const int64_t count : {int64_t{1}, int64_t{4095}, int64_t{4096}, int64_t{12289}}) {
    std::vector<at::Tensor> host = {Numbers(count, 1), Numbers(count, 2) * 0.1,
                                    Numbers(count, 3).square() * 0.01, Numbers(count, 4)};
    std::vector<at::Tensor> there;
    std::vector<at::Tensor> exact;
    for (const at::Tensor& tensor : host) {
      there.push_back(OnDevice(**device, tensor.clone()));
      exact.push_back(tensor.to(at::kDouble));
    }
    at::Tensor copy = (*device)->Empty({.dtype = DType::kBF16, .shape = {count}});
    at::Tensor sums = (*device)->Empty({.dtype = DType::kF64, .shape = {SquareBlocks(count)}});
    (*device)->Update([=]() mutable {
      SumSquaresOfBlocks(there[3], sums);
      AdamWUpdate(there[0], there[1], there[2], there[3], copy, step);
    });
    const at::Tensor g = exact[3] * 0.5;
    const at::Tensor m = exact[1] * 0.9 + g * 0.1;
    const at::Tensor v = exact[2] * 0.95 + g * g * 0.05;
    const at::Tensor p = exact[0] * (1 - 1e-3) - 1e-2 * (m / (1 - std::pow(0.9, 3))) /
                                                     ((v / (1 - std::pow(0.95, 3))).sqrt() + 1e-8);
    EXPECT_TRUE(at::allclose(OnHost(**device, there[0]).to(at::kDouble), p, 1e-5, 1e-6)) << count;
    EXPECT_TRUE(at::allclose(OnHost(**device, there[1]).to(at::kDouble), m, 1e-5, 1e-7)) << count;
    EXPECT_TRUE(at::allclose(OnHost(**device, there[2]).to(at::kDouble), v, 1e-5, 1e-8)) << count;
    EXPECT_TRUE(at::equal(OnHost(**device, copy), OnHost(**device, there[0]).to(at::kBFloat16)))
        << count;
    EXPECT_NEAR(OnHost(**device, sums).sum().item<double>(), exact[3].square().sum().item<double>(),
                1e-10 * static_cast<double>(count));
  }
}

// It judges no time: the figures are for people.
TEST(DeviceCheck, AProfileOfALargeModelIsWhole) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const graph::Graph graph = LargeModel(DType::kBF16);
  Progress progress;
  const auto profile = MeasureProfile(*program::WorkOf(graph), **device, progress);
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  double once = 0;  // Each node one time.
  for (const graph::Node& node : graph.nodes) {
    const double seconds = profile->Seconds(graph, node);
    EXPECT_GT(seconds, 0) << graph::NodeSignature(graph, node);
    once += seconds;
  }
  Note("profile", {{"seconds_of_a_microbatch", once},
                   {"seconds", profile->seconds},
                   {"flops_per_second", profile->flops_per_second},
                   {"bytes_per_second", profile->bytes_per_second},
                   {"instruction_seconds", profile->instruction_seconds},
                   {"memory_bytes", (*device)->memory_cap()},
                   {"scratch_bytes", profile->scratch_bytes},
                   {"process_bytes", profile->process_bytes}});
}

TEST(DeviceCheck, ACopyToAndFromOrdinaryMemoryIsWhole) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const int64_t count = Size(100'001, 50'000'001);  // Several pieces on a card.
  const at::Tensor host = at::arange(count, at::TensorOptions(at::kInt));
  const at::Tensor value = OnDevice(**device, host.clone());
  const at::Tensor back = at::zeros({count}, at::TensorOptions(at::kInt));
  const Mark mark = (*device)->DownloadInto(value, back);
  ASSERT_TRUE(mark.Wait(After(kPatience)).ok());
  EXPECT_TRUE(at::equal(back, host));
  const at::Tensor odd = at::zeros({count / 2}, at::TensorOptions(at::kInt));
  const at::Tensor strided = value.narrow(0, 0, count / 2 * 2).view({count / 2, 2}).select(1, 1);
  ASSERT_TRUE((*device)->DownloadInto(strided, odd).Wait(After(kPatience)).ok());
  EXPECT_TRUE(at::equal(odd, at::arange(1, count, 2, at::TensorOptions(at::kInt))));
}

TEST(DeviceCheck, MissingMemoryIsNamed) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  if (!ChecksCard()) {
    GTEST_SKIP() << "the processor's memory is not to be filled";
  }
  at::Tensor small = (*device)->Empty({.dtype = DType::kF32, .shape = {1}});
  (*device)->Update([small] { at::empty({int64_t{1} << 42}, small.options()); });
  const Status status = (*device)->Drain(After(kPatience));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
}

// It ends the card's work for this process: the script runs it alone.
TEST(DeviceCheckOfErrors, ABadIndexIsNamedAndFinal) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  if (!ChecksCard()) {
    GTEST_SKIP() << "errors of the processor come at once";
  }
  const at::Tensor table = (*device)->Empty({.dtype = DType::kF32, .shape = {10, 4}});
  at::Tensor far = at::full({1}, 1'000'000, at::TensorOptions(at::kInt));
  const at::Tensor index = OnDevice(**device, far);
  (*device)->Update([=] { at::index_select(table, 0, index); });
  const Status status = (*device)->Drain(After(kPatience));
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
  EXPECT_THAT(status.ToString(), HasSubstr("cudaError"));
  EXPECT_FALSE((*device)->Download(table).mark.Wait(After(kPatience)).ok());
  // Tensors of all kinds go now, and must not throw.
}

}  // namespace
}  // namespace heddle::runtime::testing
