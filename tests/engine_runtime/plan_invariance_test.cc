/// \file
/// The plan does not matter: real executors, one thread a worker, over real transports, give the
/// same losses and the same final weights bit for bit whatever the plan, in fp32 and bf16.
#include <bit>
#include <cstdint>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/tier.h"

namespace heddle::runtime {
namespace {

using testing::Trained;
using testing::TrainingOptions;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int64_t Steps() {
  return 12;
}  // A step takes ten times as long.
#else
int64_t Steps() {
  return heddle::testing::Scaled<int64_t>(20, 20, 60);
}
#endif

// Fails the test on any error.
Trained Train(const graph::Graph& graph, const program::Plan& plan, bool shm) {
  const TrainingOptions options{.steps = Steps(), .shm = shm, .make_device = [](int /*rank*/) {
                                  return std::make_unique<CpuDevice>();
                                }};
  Trained trained = testing::Train(graph, plan, options);
  EXPECT_TRUE(trained.status.ok()) << trained.status.ToString();
  return trained;
}

class PlanInvarianceTest : public ::testing::TestWithParam<std::tuple<graph::ModelFamily, DType>> {
};

TEST_P(PlanInvarianceTest, LossesAndWeightsAreBitEqualUnderUnlikePlans) {
  const auto [family, compute] = GetParam();
  const graph::Graph graph =
      testing::SmallModel(family, compute, family == graph::ModelFamily::kGpt2 ? 0.1 : 0.0);
  const Trained single = Train(
      graph, program::SingleWorkerPlan("w0", testing::kSegments, testing::kMicrobatches), true);
  ASSERT_EQ(single.losses.size(), static_cast<size_t>(Steps()));
  EXPECT_LT(single.losses.back(), single.losses.front());
  bool shm = true;
  for (const auto& [name, plan] : testing::UnlikePlans()) {
    SCOPED_TRACE(name);
    const Trained other = Train(graph, plan, shm);
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
