/// \file
/// Goal: sums that the members' devices make in each other's memory have the bits of the sums that go
/// through the host, and of a reference, however contributions, slices and pieces are cut; all members
/// go through the host where one cannot; whatever happens to a member, the others end.
#include "engine/runtime/exchange/device_sums.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/exchange/peer_trial.h"
#include "tests/comm/cluster.h"
#include "tests/engine_runtime/exchange/summer.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::runtime::testing {
namespace {

using program::Instruction;

template <typename T>
bool HasBits(Device& device, const at::Tensor& value, const std::vector<T>& expected) {
  const Copied copied = device.Download(value);
  EXPECT_TRUE(copied.mark.Wait(After(kLongestWait)).ok());
  const std::span<const std::byte> bytes = BytesOf(copied.tensor);
  return bytes.size() == expected.size() * sizeof(T) &&
         std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0;
}

/// How many outputs of how many have other bits than the reference's, of all members.
template <typename T>
std::pair<int, int> WrongOutputs(const std::vector<SumCase>& sums,
                                 const comm::Media& media,
                                 size_t most_bytes,
                                 const FakeOptions& fake) {
  const auto members = static_cast<int>(sums.front().contributions.size());
  const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  std::vector<std::pair<int, int>> counts(static_cast<size_t>(members));
  comm::Cluster cluster(members, media);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeOptions own = fake;
    own.seed += static_cast<uint64_t>(rank);
    FakeDevice device(own);
    Summer summer(sums, rank, dtype, communicator, device, most_bytes);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    EXPECT_TRUE(summer.device_sums().Makes(summer.program().instructions[0]));
    std::vector<at::Tensor> outputs;
    std::vector<std::vector<T>> expected;
    for (uint64_t round = 0; round < 3; ++round) {
      const Status made = summer.Make(round, outputs);
      ASSERT_TRUE(made.ok()) << made.ToString();
      for (auto& sum : summer.Expected<T>(round)) {
        expected.push_back(std::move(sum));
      }
    }
    ASSERT_EQ(outputs.size(), expected.size());
    auto& [wrong, all] = counts[static_cast<size_t>(rank)];
    for (size_t i = 0; i < outputs.size(); ++i) {
      wrong += HasBits(device, outputs[i], expected[i]) ? 0 : 1;
      ++all;
    }
    EXPECT_TRUE(device.Drain(After(kLongestWait)).ok());
    EXPECT_EQ(device.violations(), std::vector<std::string>());
    ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
  std::pair<int, int> sum;
  for (const auto& [wrong, all] : counts) {
    sum.first += wrong;
    sum.second += all;
  }
  return sum;
}

class DeviceSumsTest : public ::testing::TestWithParam<DType> {};

TEST_P(DeviceSumsTest, HaveTheBitsOfTheReference) {
  for (const uint64_t seed : heddle::testing::TestSeeds(heddle::testing::Scaled(1, 4, 20))) {
    Random random(seed);
    for (int members = 2; members <= 5; ++members) {
      std::vector<SumCase> sums;
      for (int i = 0; i < 6; ++i) {
        sums.push_back(RandomCase(random, members, 700));
      }
      const size_t most = random.Below(2) == 0 ? program::kMostSumBytes : size_t{32} << 10;
      SCOPED_TRACE(fmt::format("{} members, {} bytes, seed {}", members, most, seed));
      const comm::Media& media = random.Below(2) == 0 ? comm::Media::kShm : comm::Media::kTcp;
      const auto [wrong, all] = GetParam() == DType::kF32
                                    ? WrongOutputs<float>(sums, media, most, {.seed = seed})
                                    : WrongOutputs<double>(sums, media, most, {.seed = seed});
      EXPECT_EQ(wrong, 0);
      EXPECT_GT(all, 3 * members);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types,
                         DeviceSumsTest,
                         ::testing::Values(DType::kF32, DType::kF64),
                         [](const auto& parameter) {
                           return std::string(DTypeName(parameter.param));
                         });

std::vector<SumCase> ThreeMembers() {
  return {
      {.contributions = {{{0, 0}, {0, 1}, {0, 2}}, {{0, 3}, {2, 1}}, {{3, 1}}}, .parts = {{999}}},
      {.contributions = {{{1, 0}}, {{1, 1}, {0, 4}}, {{0, 5}}}, .parts = {{77}, {5}}}};
}

// A worker of more groups has less memory for each, and the others of a group take no more of theirs.
TEST(DeviceSumsHostTest, AllGroupsShareAWorkersMemory) {
  std::vector<SumCase> sums = ThreeMembers();
  sums.push_back(
      {.contributions = {{{1, 0}}, {{0, 2}, {0, 3}}}, .parts = {{3000}}, .group = {0, 1}});
  sums.push_back({.contributions = {{{1, 0}}, {{1, 1}}},
                  .parts = {{600, 5}},
                  .rows = {250, 350},
                  .group = {0, 2}});
  constexpr size_t kMost = size_t{24} << 10;  // A page for each half.
  const auto [wrong, all] =
      WrongOutputs<float>(sums, comm::Media::kShm, kMost, {.seed = heddle::testing::TestSeed()});
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(all, 3 * (3 * 3 + 2 + 2));
  comm::Cluster cluster(3, comm::Media::kShm);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeDevice device({});
    Summer summer(sums, rank, DType::kF32, communicator, device, kMost);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    EXPECT_LE(device.memory_in_use(), static_cast<int64_t>(kMost));
    ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
}

// The same contributions through the communicator, as where a device cannot.
TEST(DeviceSumsHostTest, HaveTheBitsOfSumsThroughTheHost) {
  const std::vector<SumCase> sums = ThreeMembers();
  comm::Cluster cluster(3, comm::Media::kShm);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeDevice device({.seed = static_cast<uint64_t>(rank)});
    Summer summer(sums, rank, DType::kF32, communicator, device);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    std::vector<at::Tensor> outputs;
    ASSERT_TRUE(summer.Make(1, outputs).ok());
    const Instruction& instruction = summer.program().instructions[0];
    std::vector<std::vector<float>> values;
    for (const TreeNode& node : sums[0].contributions[static_cast<size_t>(rank)]) {
      std::vector<float>& value = values.emplace_back();
      for (int64_t i = 0; i < 999; ++i) {
        value.push_back(static_cast<float>(ValueOf(Summer::KeyOf(instruction, 1), node, i)));
      }
    }
    std::vector<std::span<const std::byte>> mine;
    for (const auto& value : values) {
      mine.push_back(std::as_bytes(std::span(value)));
    }
    std::vector<float> sum(999);
    ASSERT_TRUE(communicator
                    .ReduceTree({.nodes = instruction.contributions}, mine, comm::RawOf(sum),
                                DType::kF32, {.group = {}, .tag = 7, .deadline = {}})
                    .ok());
    EXPECT_TRUE(HasBits(device, outputs[0], sum));
  });
}

TEST(DeviceSumsHostTest, AllGoThroughTheHostWhereOneCannot) {
  const std::vector<SumCase> sums = ThreeMembers();
  for (const std::string what :
       {"no memory", "opens none", "garbled copies", "garbled sums", "the processor"}) {
    SCOPED_TRACE(what);
    comm::Cluster cluster(3, comm::Media::kShm);
    cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
      std::unique_ptr<Device> device = std::make_unique<FakeDevice>(
          FakeOptions{.has_peers = rank != 1 || what != "no memory",
                      .opens_peers = rank != 1 || what != "opens none",
                      .garbles_copies = rank == 1 && what == "garbled copies",
                      .garbles_sums = rank == 1 && what == "garbled sums"});
      if (rank == 1 && what == "the processor") {
        device = std::make_unique<CpuDevice>();
      }
      Summer summer(sums, rank, DType::kF32, communicator, *device);
      ASSERT_TRUE(summer.device_sums().Agree().ok());
      EXPECT_FALSE(summer.device_sums().Makes(summer.program().instructions[0]));
      if (rank != 1) {
        EXPECT_EQ(device->memory_in_use(), 0);  // What was for the sums is free again.
      }
    });
  }
}

TEST(DeviceSumsHostTest, TooManyContributionsGoThroughTheHost) {
  std::vector<SumCase> sums = {{.contributions = {{}, {{0, 0}}}, .parts = {{10}}},
                               ThreeMembers()[1]};
  sums[1].contributions.pop_back();
  for (int64_t i = 1; i <= static_cast<int64_t>(kMostAddends); ++i) {
    sums[0].contributions[0].push_back({.level = 0, .index = i});
  }
  comm::Cluster cluster(2, comm::Media::kShm);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeDevice device({});
    Summer summer(sums, rank, DType::kF32, communicator, device);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    EXPECT_FALSE(summer.device_sums().Makes(summer.program().instructions[0]));
    EXPECT_TRUE(summer.device_sums().Makes(summer.program().instructions[1]));
    ASSERT_TRUE(communicator.Barrier({.group = {}, .tag = 1, .deadline = {}}).ok());
  });
}

// Memory is given out again, with the pattern of an earlier trial.
TEST(PeerTrialTest, WhatAnEarlierTrialLeftIsNotRead) {
  FakeDevice device({});
  auto arena = device.peer_memory()->Allocate(size_t{16} << 10);
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  const auto arenas = std::make_shared<PeerArenas>(
      PeerArenas{.memory = {arena->memory}, .position = 0, .half = size_t{8} << 10});
  PeerTrial trial(device, arenas, 1);
  ASSERT_TRUE(trial.Put().ok());
  EXPECT_EQ(trial.Read().ToString(), Status::Ok().ToString());
  EXPECT_EQ(PeerTrial(device, arenas, 2).Read().code(), StatusCode::kDataLoss);
}

TEST(DeviceSumsFaultsTest, AnotherOrderGivesOtherBits) {
  const auto [wrong, all] =
      WrongOutputs<float>(ThreeMembers(), comm::Media::kShm, program::kMostSumBytes,
                          {.seed = heddle::testing::TestSeed(), .fault = Fault::kPeerSumReversed});
  EXPECT_GT(wrong, 0);
}

// The trial reads what is not there yet.
TEST(DeviceSumsFaultsTest, DevicesThatDoNotWaitSumThroughTheHost) {
  const std::vector<SumCase> sums = ThreeMembers();
  for (const Fault fault : {Fault::kPeerCopyEarly, Fault::kPeerMarkEndsAtOnce}) {
    comm::Cluster cluster(3, comm::Media::kShm);
    cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
      FakeDevice device(
          {.seed = heddle::testing::TestSeed() + static_cast<uint64_t>(rank), .fault = fault});
      Summer summer(sums, rank, DType::kF32, communicator, device);
      ASSERT_TRUE(summer.device_sums().Agree().ok());
      EXPECT_FALSE(summer.device_sums().Makes(summer.program().instructions[0]))
          << "fault " << static_cast<int>(fault);
    });
  }
}

// After its contributions are in place it is gone; `through_host`: as it was without devices.
StatusCode WhenAMemberLeaves(bool through_host) {
  const std::vector<SumCase> sums = ThreeMembers();
  std::vector<StatusCode> ended(3, StatusCode::kOk);
  comm::Cluster cluster(3, comm::Media::kTcp);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeDevice device({.has_peers = !through_host});
    Summer summer(sums, rank, DType::kF32, communicator, device);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    const Instruction& instruction = summer.program().instructions[0];
    const comm::CollectiveOptions options{
        .group = instruction.group, .tag = instruction.tag, .deadline = {}};
    if (rank == 1) {
      EXPECT_TRUE(communicator.Barrier(options).ok());
      return;
    }
    std::vector<at::Tensor> outputs;
    if (!through_host) {
      ended[static_cast<size_t>(rank)] = summer.Make(1, outputs).code();
      return;
    }
    ASSERT_TRUE(communicator.Barrier(options).ok());
    std::vector<float> value(999);
    const std::vector<std::span<const std::byte>> mine(
        instruction.contributions[static_cast<size_t>(rank)].size(),
        std::as_bytes(std::span(value)));
    std::vector<float> sum(999);
    ended[static_cast<size_t>(rank)] = communicator
                                           .ReduceTree({.nodes = instruction.contributions}, mine,
                                                       comm::RawOf(sum), DType::kF32, options)
                                           .code();
  });
  EXPECT_EQ(ended[0], ended[2]);
  return ended[0];
}

TEST(DeviceSumsFaultsTest, ALostMemberEndsASumLikeOneThroughTheHost) {
  EXPECT_EQ(WhenAMemberLeaves(/*through_host=*/true), StatusCode::kUnavailable);
  EXPECT_EQ(WhenAMemberLeaves(/*through_host=*/false), StatusCode::kUnavailable);
}

TEST(DeviceSumsFaultsTest, ALostDeviceEndsTheSumsOfAll) {
  const std::vector<SumCase> sums = ThreeMembers();
  comm::Cluster cluster(3, comm::Media::kShm);
  cluster.Run(1, [&](int rank, comm::Communicator& communicator) {
    FakeDevice device({.error_in_work = rank == 2 ? 1 : 0});
    Summer summer(sums, rank, DType::kF32, communicator, device);
    ASSERT_TRUE(summer.device_sums().Agree().ok());
    std::vector<at::Tensor> outputs;
    const Status made = summer.Make(1, outputs);
    EXPECT_EQ(made.code(), rank == 2 ? StatusCode::kInternal : StatusCode::kAborted)
        << made.ToString();
    EXPECT_NE(made.message().find("a work has failed"), std::string::npos) << made.ToString();
  });
}

}  // namespace
}  // namespace heddle::runtime::testing
