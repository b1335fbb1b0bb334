/// \file
/// The parts of the check of a device about the speed of a model of 134 M parameters: its profile, its
/// step, and its step by two stages. They judge no time: the figures are for people.
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "engine/graph/operator.h"
#include "engine/runtime/kernel_registry.h"
#include "engine/runtime/profiler.h"
#include "tests/engine_runtime/device/check.h"
#include "tests/engine_runtime/device/check_models.h"
#include "tests/engine_runtime/training.h"

namespace heddle::runtime::testing {
namespace {

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
                   {"runs", progress.count()},
                   {"memory_bytes", (*device)->memory_cap()},
                   {"scratch_bytes", profile->scratch_bytes},
                   {"process_bytes", profile->process_bytes}});
}

// The first steps warm up.
TEST(DeviceCheckSpeed, StepsOfALargeModel) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const graph::Graph graph = LargeModel(DType::kBF16);
  for (const bool plain : {false, true}) {
    PreferPlainAten(plain);
    int64_t memory = 0;
    const Trained trained =
        Train(graph, program::SingleWorkerPlan("w0", LargeSegments(), kMicrobatches),
              {.steps = plain ? 3 : 12, .make_device = DeviceOfRank, .look_at = [&](Device& used) {
                 memory = used.memory_in_use();
               }});
    PreferPlainAten(false);
    ASSERT_TRUE(trained.status.ok()) << trained.status.ToString();
    for (const double loss : trained.losses) {
      EXPECT_TRUE(std::isfinite(loss));
    }
    Note("speed", {{"plain", plain},
                   {"tokens_a_step", kMicrobatches * LargeTokens()},
                   {"seconds", trained.seconds},
                   {"losses", trained.losses},
                   {"memory_bytes_after", memory}});
  }
}

// Of about equal work on a card: the head's is that of three layers and a half.
program::Plan TwoStages(int microbatches) {
  const int cut = 1 + 2 * (LargeLayers() * 2 / 3);
  program::Plan plan;
  plan.generation = 1;
  plan.workers = {"w0", "w1"};
  plan.pipelines = {
      {.stages = {{.group = {0}, .first_segment = 0, .last_segment = cut, .ahead = 1},
                  {.group = {1}, .first_segment = cut, .last_segment = LargeSegments()}},
       .first_microbatch = 0,
       .microbatches = microbatches}};
  return plan;
}

// The stages are threads of one process here, each with a device of its own on the same card.
TEST(DeviceCheckStages, TwoOfALargeModelAgainstOneWorker) {
  constexpr int kEight = 8;
  constexpr int kRounds = 3;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const graph::Graph graph = LargeModel(DType::kBF16, kEight);
  const program::Plan plans[] = {program::SingleWorkerPlan("w0", LargeSegments(), kEight),
                                 TwoStages(kEight)};
  const int64_t warm_up = Size(1, 3);
  const TrainingOptions options{.steps = warm_up + Size(1, 5),
                                .microbatches = kEight,
                                .slabs = true,
                                .make_device = DeviceOfRank};
  std::vector<double> seconds[2];
  std::vector<double> losses;
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Trained trained = Train(graph, plans[i], options);
      ASSERT_TRUE(trained.status.ok()) << trained.status.ToString();
      losses = losses.empty() ? trained.losses : losses;
      EXPECT_EQ(trained.losses, losses) << "of " << i + 1 << " workers";
      seconds[i].insert(seconds[i].end(), trained.seconds.begin() + warm_up, trained.seconds.end());
    }
  }
  const double one = Median(seconds[0]);
  const double two = Median(seconds[1]);
  Note("stages", {{"tokens_a_step", kEight * LargeTokens()},
                  {"one_seconds", seconds[0]},
                  {"two_seconds", seconds[1]},
                  {"two_stages_over_one", one / two}});
  Say(fmt::format(
      "two stages on the device over one worker: {:.3f} of its speed (goal 0.96), {:.4f} "
      "and {:.4f} s a step",
      one / two, two, one));
}

}  // namespace
}  // namespace heddle::runtime::testing
