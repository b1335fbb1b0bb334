// Thousands of failure histories of the shipped coordinator and member machines, each decided by a
// seed. One that fails is made small, told, and printed with the command that replays it:
// HEDDLE_SIMULATION_HISTORY=TEXT runs that one alone, with all messages; so does, with that of a
// seed, HEDDLE_TEST_SEED=N HEDDLE_SIMULATION_HISTORIES=1, which says how many seeds are tried.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <iostream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/history/shrink.h"
#include "tests/support/sanitized.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

namespace heddle::elastic {
namespace {

std::optional<uint64_t> NumberFromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<uint64_t>(std::strtoull(text, nullptr, 10));
}

uint64_t FirstSeed() {
  const auto first = NumberFromEnvironment("HEDDLE_SIMULATION_FIRST");
  return first ? *first : testing::TestSeed();
}

/// With what a history of its kind must never meet.
SimResult RunHistory(const SimOptions& history) {
  SimResult result = Cluster(history).Run();
  std::vector<const char*> never;
  if (history.control_faults_only) {
    never = {"worker_lost", "begins anew", "recovery_source", "exit 1", "exit 2"};
  } else if (history.notices_only) {
    never = {"recovery_source", "steps repeated", "drain_refused", "exit 1", "exit 2"};
  }
  for (const char* name : never) {
    if (result.error.empty() && result.probes[name] > 0) {
      result.error = fmt::format("seed {}: {}: {}", history.seed, name, result.probes[name]);
    }
  }
  return result;
}

/// What is wrong with a history; empty: nothing.
std::string ErrorOf(const SimOptions& history) {
  return RunHistory(history).error;
}

void AddProbes(std::map<std::string, int>& probes, const SimResult& result) {
  for (const auto& [name, count] : result.probes) {
    probes[name] += count;
  }
}

/// How much of the processor's time histories take.
struct Pace {
  int histories = 0;
  double seconds = 0;
};

/// The failure of a history, for people: of a small one that fails, too.
std::string Explain(const SimOptions& history, const std::string& error) {
  SimOptions small =
      Shrink(history, [](const SimOptions& candidate) { return !ErrorOf(candidate).empty(); });
  const std::string small_error = ErrorOf(small);
  small.record = true;
  return fmt::format(
      "{}\nthe smallest history that fails:\n{}{}\nreplay it with all messages:\n"
      "  HEDDLE_SIMULATION_HISTORY='{}' test_elastic_simulation_simulation "
      "--gtest_filter=SimulationTest.OneHistory\nor as it was drawn:\n"
      "  HEDDLE_SIMULATION_HISTORY='{}' test_elastic_simulation_simulation "
      "--gtest_filter=SimulationTest.OneHistory",
      error, Story(Cluster(small).Run()), small_error, TextOf(small), TextOf(history));
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
                                    "coordinator doubled",
                                    "a former coordinator goes on",
                                    "a former coordinator's write is refused",
                                    "a former coordinator stands by",
                                    "a worker comes to a former coordinator",
                                    "a store was lost",
                                    "a bystander's stream breaks",
                                    "a bystander's stream breaks, which is ahead",
                                    "a halted worker hears nothing",
                                    "woken late",
                                    "coordinator_restarted",
                                    "links ok",
                                    "links failed",
                                    "links timeout",
                                    "links lost",
                                    "links known to a plan",
                                    "vote crippled",
                                    "vote not heard by one",
                                    "wrong one blamed",
                                    "drift",
                                    "checkpoint",
                                    "checkpoint_refused",
                                    "validation",
                                    "power cut",
                                    "stuck",
                                    "stuck, and says it waits",
                                    "stuck in a step",
                                    "stuck in a step, and says it waits",
                                    "named by waits",
                                    "named by a chain of waits",
                                    "waits in a circle",
                                    "slow, with progress",
                                    "stood still",
                                    "planned for long",
                                    "plan refused",
                                    "a plan cannot be prepared",
                                    "a program differs",
                                    "a write failed",
                                    "a write took long",
                                    "a write is lost",
                                    "a write arrives after its process",
                                    "crashed in its actions",
                                    "crashed in its store",
                                    "save committed",
                                    "save given up",
                                    "from live",
                                    "from replicas",
                                    "from checkpoint",
                                    "complete snapshot",
                                    "replica_refused",
                                    "state_refused",
                                    "tensors of one refused",
                                    "parts of one refused",
                                    "own part refused",
                                    "who refuses all is lost",
                                    "another holder taken",
                                    "digests told",
                                    "one altered replica found",
                                    "altered replicas, no majority",
                                    "decided for disagreement",
                                    "cut_off",
                                    "heard_again",
                                    "decided for form",
                                    "decided for join",
                                    "decided for leave",
                                    "decided for drift",
                                    "decided for loss",
                                    "decided for failure",
                                    "decided for restart",
                                    "plan_kept",
                                    "recovered",
                                    "begins anew",
                                    "drains promised",
                                    "refused elsewhere",
                                    "drains taken back",
                                    "drains taken back, of who gives its state",
                                    "notices withdrawn",
                                    "worker_quarantined",
                                    "losses_held",
                                    "losses_released",
                                    "given up though it works",
                                    "suspended and saved",
                                    "suspended without its save",
                                    "saved at rest",
                                    "saved before it came to rest",
                                    "ended suspended",
                                    "cancelled",
                                    "exit 0",
                                    "exit 1",
                                    "exit 2",
                                    "exit 75"};

/// And each kind of fault.
std::vector<std::string> MustHappen() {
  std::vector<std::string> names(kMustHappen.begin(), kMustHappen.end());
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    names.push_back(std::string("fault ") + NameOf(static_cast<FaultKind>(kind)));
  }
  return names;
}

TEST(SimulationTest, OneHistory) {
  const char* text = std::getenv("HEDDLE_SIMULATION_HISTORY");
  if (text == nullptr) {
    GTEST_SKIP() << "HEDDLE_SIMULATION_HISTORY names none";
  }
  auto history = HistoryFromText(text);
  ASSERT_TRUE(history.ok()) << history.status().ToString();
  history->trace = true;
  EXPECT_EQ(ErrorOf(*history), "");
}

// For scripts/core-mutants: which history is the first to find what is planted.
TEST(SimulationTest, HistoriesUntilAFailure) {
  const auto most = NumberFromEnvironment("HEDDLE_SIMULATION_UNTIL_FAILURE");
  if (!most) {
    GTEST_SKIP() << "HEDDLE_SIMULATION_UNTIL_FAILURE says not how many";
  }
  const uint64_t first = FirstSeed();
  for (uint64_t i = 0; i < *most; ++i) {
    std::cout << "history " << i + 1 << std::endl;  // Before it may end the process.
    for (const SimOptions& history :
         {DrawHistory(first + i), DrawControlHistory(first + i), DrawNoticeHistory(first + i)}) {
      const bool is_rare = history.calm() && i % 20 > 0;
      const std::string error = is_rare ? "" : ErrorOf(history);
      ASSERT_EQ(error, "") << Explain(history, error);
    }
  }
}

TEST(SimulationTest, HistoriesOfFailuresEndWell) {
  const uint64_t first = FirstSeed();
  std::map<std::string, int> probes;
  int failures = 0;
  double longest_wait = 0;
  // So many, and more until what is rare has happened, too.
  const int wanted = static_cast<int>(
      NumberFromEnvironment("HEDDLE_SIMULATION_HISTORIES")
          .value_or(kSanitized ? testing::Scaled(30, 100, 1500) : testing::Scaled(100, 300, 5000)));
  if (wanted == 1) {
    SimOptions history = DrawHistory(first);
    history.trace = true;
    EXPECT_EQ(ErrorOf(history), "");
    return;
  }
  const int most = std::max(20'000, wanted);
  // A sanitizer looks at the code; how much happens is for the builds that are ten times as fast.
  const auto must_happen = kSanitized ? std::vector<std::string>() : MustHappen();
  const auto all_happened = [&] {
    return std::ranges::all_of(must_happen, [&](const auto& name) { return probes[name] > 0; });
  };
  int histories = 0;
  std::array<Pace, 2> paces;  // Of small clusters and of large ones.
  while (failures < 3 && histories < most && (histories < wanted || !all_happened())) {
    const SimOptions history = DrawHistory(first + static_cast<uint64_t>(histories++));
    const std::clock_t begin = std::clock();
    const SimResult result = Cluster(history).Run();
    Pace& pace = paces[history.workers > kMaxOfSmallCluster ? 1 : 0];
    pace.seconds += static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    ++pace.histories;
    if (!result.error.empty()) {
      ++failures;
      ADD_FAILURE() << Explain(history, result.error);
    }
    longest_wait = std::max(longest_wait, result.longest_wait);
    AddProbes(probes, result);
  }
  std::cout << histories << " histories from seed " << first
            << "; after the last fault a step within " << longest_wait << " s\n";
  for (const Pace& pace : paces) {
    std::cout << "  " << pace.histories << " of at most "
              << (&pace == &paces[0] ? kMaxOfSmallCluster : kMaxOfLargeCluster) << " workers in "
              << pace.seconds << " s\n";
  }
  for (const auto& [name, count] : probes) {
    std::cout << "  " << name << ": " << count << "\n";
  }
  for (const std::string& name : must_happen) {
    EXPECT_GT(probes[name], 0) << name << " never happened";
  }
}

TEST(SimulationTest, WhoeverTrainsIsNotGivenUpForItsSilence) {
  const uint64_t first = FirstSeed();
  const int histories = testing::Scaled(10, 30, 300);
  std::map<std::string, int> probes;
  for (int i = 0; i < histories; ++i) {
    const SimOptions history = DrawControlHistory(first + static_cast<uint64_t>(i));
    const SimResult result = RunHistory(history);
    ASSERT_EQ(result.error, "") << Explain(history, result.error);
    AddProbes(probes, result);
  }
  EXPECT_GT(probes["cut_off"], 0) << "from seed " << first;
  EXPECT_EQ(probes["heard_again"], probes["cut_off"]) << "from seed " << first;
}

TEST(SimulationTest, NoStepIsLostWhenAllAreSignalledAtOnce) {
  const uint64_t first = FirstSeed();
  const int histories = testing::Scaled(100, 300, 3000);
  std::map<std::string, int> probes;
  for (int i = 0; i < histories; ++i) {
    const SimOptions history = DrawNoticeHistory(first + static_cast<uint64_t>(i));
    const SimResult result = RunHistory(history);
    ASSERT_EQ(result.error, "") << Explain(history, result.error);
    AddProbes(probes, result);
  }
  for (const char* name : {"suspended and saved", "saved at rest", "saved before it came to rest",
                           "exit 75", "notice while training", "notice while changing",
                           "notice while suspending", "notice while suspended"}) {
    EXPECT_GT(probes[name], 0) << name << " never happened, from seed " << first;
  }
}

// The ledger checks every generation, status and checkpoint.
TEST(SimulationTest, AGuaranteeIsShownAsItIsAndADemandedOneIsKept) {
  const uint64_t first = FirstSeed();
  const int wanted = kSanitized ? 30 : testing::Scaled(100, 300, 3000);
  std::map<std::string, int> probes;
  const auto all_happened = [&] {
    return kSanitized || (probes["worker_refused"] > 0 && probes["unlike steps computed"] > 0 &&
                          probes["unlike steps undone"] > 0);
  };
  int histories = 0;
  for (; histories < wanted || (!all_happened() && histories < 10'000); ++histories) {
    const SimOptions history = DrawUnlikeHistory(first + static_cast<uint64_t>(histories));
    const SimResult result = RunHistory(history);
    ASSERT_EQ(result.error, "") << Explain(history, result.error);
    AddProbes(probes, result);
  }
  EXPECT_TRUE(all_happened()) << "from seed " << first;
  std::cout << histories << " histories: " << probes["worker_refused"] << " workers refused, "
            << probes["unlike steps computed"] << " times unlike steps were computed, and "
            << probes["unlike steps undone"] << " times undone\n";
}

TEST(SimulationTest, TheSameSeedGivesTheSameHistory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimOptions history = DrawHistory(seed);
    const auto again = HistoryFromText(TextOf(history));
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(*again, history) << TextOf(history);
    SimOptions recorded = history;
    recorded.record = true;
    const SimResult one = Cluster(recorded).Run();
    const SimResult two = Cluster(recorded).Run();
    EXPECT_EQ(one.seconds, two.seconds) << "seed " << seed;
    EXPECT_EQ(one.probes, two.probes) << "seed " << seed;
    EXPECT_EQ(one.digest, two.digest) << "seed " << seed;
  }
}

TEST(SimulationTest, AHistorySaysWhatItCannotRead) {
  for (const char* text : {"seed", "seed=x", "fault=1/2/3", "kill=1/2", "kill=1/2/x", "luck=2"}) {
    EXPECT_FALSE(HistoryFromText(text).ok()) << text;
  }
}

// A failure that needs one fault of many, and three workers.
TEST(SimulationTest, AHistoryThatFailsIsMadeSmall) {
  SimOptions history = DrawHistory(1);
  history.faults.clear();
  for (int i = 0; i < 20; ++i) {
    const auto kind = i == 13 ? FaultKind::kDrain : FaultKind::kJoin;
    history.faults.push_back({kind, 1.0 + i, 20, 7});
  }
  history.workers = 8;
  const SimOptions small = Shrink(history, [](const SimOptions& candidate) {
    return candidate.workers >= 3 && std::ranges::any_of(candidate.faults, [](const Fault& fault) {
             return fault.kind == FaultKind::kDrain;
           });
  });
  EXPECT_EQ(TextOf(small), "seed=1,workers=3,steps=1,luck=0,drain=0/0/0");
}

// The checks themselves: each planted fault must be found.
class PlantedFaultTest : public ::testing::TestWithParam<std::pair<const char*, Planted>> {};

TEST_P(PlantedFaultTest, IsFound) {
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SimOptions history = DrawHistory(seed);
    history.planted = GetParam().second;
    if (!Cluster(history).Run().error.empty()) {
      return;
    }
  }
  ADD_FAILURE() << "no history found it";
}

INSTANTIATE_TEST_SUITE_P(All,
                         PlantedFaultTest,
                         ::testing::Values(std::pair("SkipSettle", Planted::kSkipSettle),
                                           std::pair("IgnoreFence", Planted::kIgnoreFence),
                                           std::pair("ForgetGeneration",
                                                     Planted::kForgetGeneration),
                                           std::pair("StalePart", Planted::kStalePart),
                                           std::pair("ApplySkipped", Planted::kApplySkipped),
                                           std::pair("TrustMoves", Planted::kTrustMoves),
                                           std::pair("TrustDigests", Planted::kTrustDigests),
                                           std::pair("ForgetLog", Planted::kForgetLog),
                                           std::pair("TwoOwners", Planted::kTwoOwners)),
                         [](const auto& test) { return std::string(test.param.first); });

}  // namespace
}  // namespace heddle::elastic
