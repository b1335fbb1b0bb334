/// \file
/// Goal: a group of workers that runs a graph together, each its local graph with exchanges
/// between, trains as one worker does: on the processor and on fake devices that do everything as
/// late as they may, over shared memory and over TCP.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "tests/engine_runtime/exchange/group_programs.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/graph/groups.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using heddle::testing::GroupCase;
using ::testing::IsEmpty;

struct Setting {
  std::string name;
  bool fake = false;
  bool shm = true;
  bool slabs = false;
};

std::vector<Setting> Settings() {
  return {{.name = "processor"},
          {.name = "slabs", .slabs = true},
          {.name = "tcp", .shm = false},
          {.name = "fake", .fake = true},
          {.name = "fake slabs", .fake = true, .slabs = true}};
}

TrainingOptions OptionsOf(const Setting& setting, int64_t steps) {
  TrainingOptions options{
      .steps = steps, .shm = setting.shm, .slabs = setting.slabs, .make_device = [](int /*rank*/) {
        return std::make_unique<CpuDevice>();
      }};
  if (setting.fake) {
    options.make_device = [](int rank) {
      return std::make_unique<FakeDevice>(
          FakeOptions{.seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank)});
    };
    options.look_at = [](Device& device) {
      EXPECT_THAT(dynamic_cast<FakeDevice&>(device).violations(), IsEmpty());
      EXPECT_EQ(device.memory_in_use(), 0);
    };
  }
  return options;
}

/// In fp64, where one worker and a group differ by rounding alone.
graph::Graph GraphOf(graph::ModelConfig& config) {
  config.vocab_size = 97;
  config.max_position_embeddings = 16;
  auto graph = graph::BuildTrainingGraph(config, {.microbatch_size = 2,
                                                  .sequence_length = 16,
                                                  .compute = DType::kF64,
                                                  .loss_scale = 1.0 / (kMicrobatches * 2 * 16),
                                                  .optimizer = {}});
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  return *std::move(graph);
}

/// The ranks of a group, by position: not the positions themselves.
std::vector<int> GroupOf(size_t members) {
  std::vector<int> group;
  for (size_t i = members; i > 0; --i) {
    group.push_back(static_cast<int>(i) - 1);
  }
  std::rotate(group.begin(), group.begin() + 1, group.end());
  return group;
}

void ExpectNear(const Trained& group, const Trained& one) {
  ASSERT_TRUE(group.status.ok()) << group.status.ToString();
  ASSERT_EQ(group.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(group.losses[i], one.losses[i], 1e-9 * one.losses[i]) << "step " << i + 1;
  }
  ASSERT_EQ(group.masters.size(), one.masters.size());
  for (const auto& [name, bytes] : one.masters) {
    const std::vector<std::byte>& other = group.masters.at(name);
    ASSERT_EQ(other.size(), bytes.size()) << name;
    double most = 0;
    for (size_t at = 0; at < bytes.size(); at += sizeof(double)) {
      double a = 0;
      double b = 0;
      std::memcpy(&a, bytes.data() + at, sizeof(a));
      std::memcpy(&b, other.data() + at, sizeof(b));
      most = std::max(most, std::isfinite(b) ? std::abs(a - b) : INFINITY);
    }
    // AdamW divides by the root of a gradient's square, so that small gradients count as much.
    EXPECT_LT(most, 1e-5) << name;
  }
}

Trained TrainGroup(const GroupPrograms& group, const TrainingOptions& options) {
  std::vector<WorkerPart> parts(group.programs.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[static_cast<size_t>(group.programs[i].rank)] = {.graph = &group.members[i].graph,
                                                          .program = &group.programs[i]};
  }
  return Train(parts, options);
}

class GroupTrainingTest : public ::testing::TestWithParam<GroupCase> {};

TEST_P(GroupTrainingTest, TrainsAsOneWorkerDoes) {
  graph::ModelConfig config = GetParam().config;
  const graph::Graph graph = GraphOf(config);
  const graph::Layout layout = heddle::testing::LayoutOf(graph, config, GetParam().parallel);
  const auto members = GetParam().parallel.units.size();
  const GroupPrograms group = ProgramsOf(graph, layout, GroupOf(members), kMicrobatches);
  const auto steps = heddle::testing::Scaled<int64_t>(2, 3, 12);
  const Trained one =
      Train(graph,
            program::SingleWorkerPlan("w0", static_cast<int>(graph.segments.size()), kMicrobatches),
            OptionsOf(Settings()[0], steps));
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(setting.name);
    ExpectNear(TrainGroup(group, OptionsOf(setting, steps)), one);
  }
}

/// Those whose members have no part of a parameter in common.
std::vector<GroupCase> Cases() {
  std::vector<GroupCase> cases = heddle::testing::GroupCases();
  std::erase_if(cases, [](const GroupCase& one) { return one.parallel.within_groups; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         GroupTrainingTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& parameter) {
                           std::string name = parameter.param.name;
                           std::erase(name, ' ');
                           return name;
                         });

// The runtime's own care with an exchange's copies.
TEST(GroupTrainingFaultsTest, BrokenPromisesChangeWhatIsTrained) {
  const GroupCase chosen = Cases().front();
  graph::ModelConfig config = chosen.config;
  const graph::Graph graph = GraphOf(config);
  const GroupPrograms group = ProgramsOf(
      graph, heddle::testing::LayoutOf(graph, config, chosen.parallel), GroupOf(2), kMicrobatches);
  const Trained good = TrainGroup(group, OptionsOf(Settings()[0], 2));
  ASSERT_TRUE(good.status.ok()) << good.status.ToString();
  for (const Fault fault :
       {Fault::kDownloadSourceFreed, Fault::kDownloadEarly, Fault::kMarkEndsAtOnce,
        Fault::kAwaitForgotten, Fault::kUploadSkipped, Fault::kWaitGivesUp}) {
    TrainingOptions options = OptionsOf(Settings()[0], 2);
    options.make_device = [fault](int rank) {
      return std::make_unique<FakeDevice>(
          FakeOptions{.seed = static_cast<uint64_t>(rank), .fault = fault});
    };
    const Trained broken = TrainGroup(group, options);
    EXPECT_FALSE(broken.status.ok() && broken.losses == good.losses)
        << "fault " << static_cast<int>(fault);
  }
}

TEST(GroupTrainingFaultsTest, ALostDeviceEndsTheRunOfTheWholeGroup) {
  const GroupCase chosen = Cases().front();
  graph::ModelConfig config = chosen.config;
  const graph::Graph graph = GraphOf(config);
  const GroupPrograms group = ProgramsOf(
      graph, heddle::testing::LayoutOf(graph, config, chosen.parallel), GroupOf(2), kMicrobatches);
  for (const int64_t copy : {1, 7, 40}) {
    TrainingOptions options = OptionsOf(Settings()[0], 4);
    options.make_device = [copy](int rank) {
      return std::make_unique<FakeDevice>(
          FakeOptions{.seed = static_cast<uint64_t>(rank), .lost_in_copy = rank == 0 ? copy : 0});
    };
    EXPECT_FALSE(TrainGroup(group, options).status.ok()) << copy;
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
