/// \file
/// Goal: a device computes what the processor computes, the same each time and under every plan,
/// and its errors are named. scripts/device-check runs this on a card; here it runs on the
/// processor and on the fake device, so that the check itself is sound.
#include "tests/engine_runtime/device/check.h"

#include <map>
#include <tuple>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/runtime/compare/operator_runs.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/kernel_registry.h"
#include "tests/engine_runtime/device/check_models.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kVocabulary = 97;  // Of SmallModel.

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

using ModelAndType = std::tuple<Kind, DType>;

TEST(DeviceCheck, KeepsToWhatDevicesPromise) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  Note("arithmetic", {{"parts", (*device)->arithmetic()}});
  for (const uint64_t seed : heddle::testing::TestSeeds(3)) {
    EXPECT_THAT(BrokenPromises(**device, seed, CheckedQueue()), IsEmpty()) << "seed " << seed;
  }
}

enum class Against { kExact, kNothing };

// Every operator of a model by the device's own kernels, against fp64 on the host, or, where only
// bits are compared, against nothing: with long sequences fp64 takes the host minutes.
std::vector<OperatorRun> RunsOf(Device& device,
                                const ModelAndType& model,
                                int64_t length,
                                Against against) {
  const auto [kind, compute] = model;
  const graph::Graph exact = Model(kind, DType::kF64, length);
  auto runs = RunOperators(Model(kind, compute, length),
                           against == Against::kExact ? &exact : nullptr, kVocabulary, device);
  EXPECT_TRUE(runs.ok()) << runs.status().ToString();
  return runs.ok() ? *runs : std::vector<OperatorRun>();
}

class DeviceCheckModels : public ::testing::TestWithParam<ModelAndType> {};

// An operator of several additions may differ from the plain form of the same precision by a small
// factor, because it adds in another order; a wrong one differs by orders of magnitude.
TEST_P(DeviceCheckModels, OperatorsAreAsExactAsPlainOnes) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  for (const int64_t length : {Size(7, 33), Size(24, 512)}) {
    const auto own = RunsOf(**device, GetParam(), length, Against::kExact);
    PreferPlainAten(true);
    const auto plain = RunsOf(**device, GetParam(), length, Against::kExact);
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
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const int64_t length = Size(24, 2048);
  const auto first = RunsOf(**device, GetParam(), length, Against::kNothing);
  ASSERT_FALSE(first.empty());
  for (int64_t repeat = 0; repeat < Size(1, 3); ++repeat) {
    const auto again = RunsOf(**device, GetParam(), length, Against::kNothing);
    ASSERT_EQ(again.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(again[i].bits, first[i].bits) << first[i].signature;
      EXPECT_THAT(again[i].exact, IsEmpty());
    }
  }
}

TEST_P(DeviceCheckModels, LossesAndWeightsAreBitEqualUnderUnlikePlans) {
  const auto [kind, compute] = GetParam();
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const bool has_peers = (*device)->peer_memory() != nullptr;
  const graph::Graph graph = Model(kind, compute, Size(16, 2048));
  const TrainingOptions options{.steps = Size(3, 8), .make_device = DeviceOfRank};
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
    // Sums through the host have the same bits. In each plan of several workers some hold the same
    // parameters, if only the embedding, which is the head, too.
    EXPECT_EQ(other.device_sums > 0, has_peers && plan.workers.size() > 1)
        << other.device_sums << " sums of gradients were made on the devices";
    Note("plan", {{"plan", name}, {"device_sums", other.device_sums}});
  }
}

// The processor's losses are close: they are computed from the same weights and samples.
TEST_P(DeviceCheckModels, LossesAreCloseToTheProcessors) {
  const auto [kind, compute] = GetParam();
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const graph::Graph graph = Model(kind, compute, 16);
  const program::Plan plan = program::SingleWorkerPlan("w0", kSegments, kMicrobatches);
  const Trained here = Train(graph, plan, {.steps = 10, .make_device = DeviceOfRank});
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
    GTEST_SKIP() << "no cuDNN computes attention here: it is "
                 << (attention == arithmetic.end() ? "the processor's" : attention->second);
  }
  for (const int64_t head_dim : {64, 128}) {
    EXPECT_TRUE(CudnnTakes(**device, head_dim)) << "heads of " << head_dim;
  }
  Note("attention", {{"heads_of_8", CudnnTakes(**device, 8)}});
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
