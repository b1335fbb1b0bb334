// Thousands of failure histories of the shipped coordinator and member machines, each decided by a
// seed. A failing seed is printed; HEDDLE_TEST_SEED=N runs that one alone, with its trace.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/support/tier.h"

namespace heddle::elastic {
namespace {

std::optional<uint64_t> SeedFromEnvironment() {
  const char* text = std::getenv("HEDDLE_TEST_SEED");
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

SimOptions OptionsOf(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.workers = 1 + static_cast<int>(seed % 5);
  options.steps = 30 + static_cast<int64_t>(seed % 3) * 15;
  options.faults = static_cast<int>(seed / 5 % 6);
  options.fault_window_seconds = 4;
  options.hosts = 2 + static_cast<int>(seed % 3);
  options.domains = 1 + static_cast<int>(seed / 2 % 3);
  options.replicate_every = std::array<int64_t, 4>{1, 3, 0, 7}[seed / 7 % 4];
  options.planner_ms = seed / 29 % 4 == 0 ? 3000 : 80;
  options.checkpoint_every = seed / 23 % 2 == 0 ? 10 : 4;
  options.replica_copies = 1 + static_cast<int>(seed / 11 % 2);
  options.tells_moves = seed / 13 % 3 == 0;
  options.refused_every = std::array<int64_t, 3>{0, 2, 7}[seed / 17 % 3];
  options.stop_on_refused = options.refused_every == 7 && seed / 19 % 4 == 0;
  return options;
}

/// Histories that never meet these would prove nothing.
constexpr std::array kMustHappen = {"worker_lost",
                                    "worker_left",
                                    "resumed",
                                    "steps repeated",
                                    "settled",
                                    "settled without its update",
                                    "stopped by a step",
                                    "norm known, not applied",
                                    "coordinator restarted",
                                    "coordinator_restarted",
                                    "links ok",
                                    "links failed",
                                    "links timeout",
                                    "links lost",
                                    "links known to a plan",
                                    "vote crippled",
                                    "wrong one blamed",
                                    "drift",
                                    "checkpoint",
                                    "checkpoint_refused",
                                    "validation",
                                    "power cut",
                                    "stuck",
                                    "slow, with progress",
                                    "stood still",
                                    "planned for long",
                                    "plan refused",
                                    "save committed",
                                    "save given up",
                                    "from live",
                                    "from replicas",
                                    "from checkpoint",
                                    "complete snapshot",
                                    "replica_refused",
                                    "cut_off",
                                    "heard_again",
                                    "begins anew",
                                    "exit 0",
                                    "exit 1",
                                    "exit 2"};

TEST(SimulationTest, HistoriesOfFailuresEndWell) {
  if (const auto seed = SeedFromEnvironment()) {
    SimOptions options = OptionsOf(*seed);
    options.trace = true;
    const SimResult result = Cluster(options).Run();
    EXPECT_EQ(result.error, "");
    return;
  }
  const uint64_t first = std::random_device()() % 1000000000;
  std::map<std::string, int> probes;
  int failures = 0;
  // So many, and more until what is rare has happened, too.
  const int wanted = testing::Scaled(100, 300, 5000);
  constexpr int kMostHistories = 20'000;
  const auto all_happened = [&] {
    return std::ranges::all_of(kMustHappen, [&](const char* name) { return probes[name] > 0; });
  };
  const auto begin = std::chrono::steady_clock::now();
  int histories = 0;
  while (failures < 3 && histories < kMostHistories && (histories < wanted || !all_happened())) {
    const uint64_t seed = first + static_cast<uint64_t>(histories++);
    const SimResult result = Cluster(OptionsOf(seed)).Run();
    if (!result.error.empty()) {
      ++failures;
      ADD_FAILURE() << result.error << "\nrun again with HEDDLE_TEST_SEED=" << seed;
    }
    for (const auto& [name, count] : result.probes) {
      probes[name] += count;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << histories << " histories from seed " << first << " in " << seconds << " s\n";
  for (const auto& [name, count] : probes) {
    std::cout << "  " << name << ": " << count << "\n";
  }
  for (const char* name : kMustHappen) {
    EXPECT_GT(probes[name], 0) << name << " never happened";
  }
}

TEST(SimulationTest, WhoeverTrainsIsNotGivenUpForItsSilence) {
  const auto fixed = SeedFromEnvironment();
  const uint64_t first = fixed.value_or(std::random_device()() % 1000000000);
  const int histories = fixed ? 1 : testing::Scaled(10, 30, 300);
  std::map<std::string, int> probes;
  for (int i = 0; i < histories; ++i) {
    SimOptions options;
    options.seed = first + static_cast<uint64_t>(i);
    options.workers = 1 + static_cast<int>(options.seed % 8);
    options.steps = 1500;  // Longer than all faults: at the end nobody waits for steps.
    options.faults = 4;
    options.fault_window_seconds = 15;
    options.control_faults_only = true;
    options.trace = fixed.has_value();
    SimResult result = Cluster(options).Run();
    for (const char* never :
         {"worker_lost", "begins anew", "recovery_source", "exit 1", "exit 2"}) {
      if (result.error.empty() && result.probes[never] > 0) {
        result.error =
            fmt::format("{}: {} (faults: {})", never, result.probes[never], result.faults);
      }
    }
    ASSERT_EQ(result.error, "") << "run again with HEDDLE_TEST_SEED=" << options.seed;
    for (const auto& [name, count] : result.probes) {
      probes[name] += count;
    }
  }
  if (!fixed) {
    EXPECT_GT(probes["cut_off"], 0) << "from seed " << first;
    EXPECT_EQ(probes["heard_again"], probes["cut_off"]) << "from seed " << first;
  }
}

TEST(SimulationTest, TheSameSeedGivesTheSameHistory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimResult one = Cluster(OptionsOf(seed)).Run();
    const SimResult two = Cluster(OptionsOf(seed)).Run();
    EXPECT_EQ(one.seconds, two.seconds) << "seed " << seed;
    EXPECT_EQ(one.probes, two.probes) << "seed " << seed;
    EXPECT_EQ(one.digest, two.digest) << "seed " << seed;
  }
}

// The checks themselves: each planted fault must be found.
class PlantedFaultTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedFaultTest, IsFound) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SimOptions options = OptionsOf(seed);
    options.workers = 4;
    options.faults = 5;
    options.planted = GetParam();
    if (!Cluster(options).Run().error.empty()) {
      return;
    }
  }
  ADD_FAILURE() << "no history found it";
}

INSTANTIATE_TEST_SUITE_P(All,
                         PlantedFaultTest,
                         ::testing::Values(Planted::kSkipSettle,
                                           Planted::kIgnoreFence,
                                           Planted::kForgetGeneration,
                                           Planted::kStalePart,
                                           Planted::kApplySkipped,
                                           Planted::kForgetLog),
                         [](const ::testing::TestParamInfo<Planted>& test) -> std::string {
                           switch (test.param) {
                             case Planted::kSkipSettle:
                               return "SkipSettle";
                             case Planted::kIgnoreFence:
                               return "IgnoreFence";
                             case Planted::kStalePart:
                               return "StalePart";
                             case Planted::kForgetLog:
                               return "ForgetLog";
                             case Planted::kApplySkipped:
                               return "ApplySkipped";
                             default:
                               return "ForgetGeneration";
                           }
                         });

}  // namespace
}  // namespace heddle::elastic
