// The losses and joins that a cloud's spot instances had, replayed in virtual time: all checks of
// the simulation hold, and what the job gets done is compared with what it would if every change
// took no time at all.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/elastic/simulation/cluster.h"
#include "tests/elastic/simulation/traces/spot_trace.h"
#include "tests/support/seed.h"

namespace heddle::elastic {
namespace {

constexpr int kMaxInstances = 32;
constexpr int64_t kStepMs = 250;            // With all of them.
constexpr double kOverheadSeconds = 0.005;  // Of a step: its vote.

/// Instances that are there, by time.
struct Span {
  double seconds = 0;
  int instances = 0;
};

std::vector<Span> SpansOf(const std::vector<SpotInstant>& trace, double speed) {
  std::vector<Span> spans;
  int instances = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    instances += trace[i].joins - static_cast<int>(trace[i].lost.size());
    const int minutes =
        i + 1 < trace.size() ? trace[i + 1].minute - trace[i].minute : 100'000;  // To the end.
    spans.push_back({60 * minutes / speed, instances});
  }
  return spans;
}

/// Steps that are made in so many seconds where every change takes no time: whoever is there
/// computes.
double FreeSteps(const std::vector<Span>& spans, double seconds) {
  double steps = 0;
  for (const Span& span : spans) {
    const double part = std::min(span.seconds, seconds);
    const double step_seconds = kOverheadSeconds + 0.001 * kStepMs * kMaxInstances / span.instances;
    steps += part / step_seconds;
    seconds -= part;
  }
  return steps;
}

/// What the instances do, in the order of their numbers: a loss is a kill without a warning.
void Replay(Cluster& cluster, const std::vector<SpotInstant>& trace, double speed) {
  std::vector<std::string> keys = {""};
  for (int i = 0; i < trace.front().joins; ++i) {  // They are spawned first of all.
    keys.push_back(fmt::format("p{:02}", i));
  }
  const auto all = std::make_shared<std::vector<std::string>>(std::move(keys));
  const Time begin = cluster.world.now();
  for (size_t i = 1; i < trace.size(); ++i) {
    const Time at = begin + FromSeconds(60 * trace[i].minute / speed);
    cluster.faults.LastUntil(at);
    cluster.world.At(at, [&cluster, all, instant = trace[i]] {
      for (const int number : instant.lost) {
        const std::string& key = all->at(static_cast<size_t>(number));
        if (cluster.fleet.at(key).runs()) {
          cluster.members.Kill(key);
        }
      }
      for (int join = 0; join < instant.joins; ++join) {
        all->push_back(cluster.members.Spawn(""));
      }
    });
  }
}

class SpotTest : public ::testing::TestWithParam<std::pair<int, double>> {};

// Its job is as long as that part of the free one's work in the time of the record.
TEST_P(SpotTest, TheJobGetsDoneWhatItsInstancesCanDo) {
  const auto& [speed, least] = GetParam();
  const std::vector<SpotInstant> trace = SpotTrace();
  const std::vector<Span> spans = SpansOf(trace, speed);
  const double seconds = 60.0 * trace.back().minute / speed;
  SimOptions options;
  options.seed = testing::TestSeed();
  options.workers = trace.front().joins;
  options.hosts = 1000;
  options.luck = false;
  options.step_ms = kStepMs;
  options.steps = static_cast<int64_t>(least * FreeSteps(spans, seconds));
  options.replicate_every = 10;
  options.digest_every = 10;
  options.checkpoint_every = 50;
  options.product_patience = true;
  options.replayed = kMaxInstances;
  Cluster cluster(options);
  Replay(cluster, trace, speed);
  const std::clock_t begin = std::clock();
  SimResult result = cluster.Run();
  ASSERT_EQ(result.error, "") << "HEDDLE_TEST_SEED=" << options.seed;
  const double free_steps = FreeSteps(spans, result.seconds);
  const double goodput = static_cast<double>(options.steps) / free_steps;
  std::cout << fmt::format(
      "{} times as fast as recorded: {} steps in {:.0f} s of virtual time ({:.1f} s of the "
      "processor), {:.0f} where changes are free: goodput {:.1f} %\n"
      "  {} workers lost, {} recoveries, {} from live state, {} generations for joins, {} steps "
      "run again in {} of them\n",
      speed, options.steps, result.seconds,
      static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, free_steps, 100 * goodput,
      result.probes["worker_lost"], result.probes["resumed"], result.probes["from live"],
      result.probes["decided for join"], result.probes["steps repeated"], result.probes["resumed"]);
  EXPECT_GE(goodput, least);
  EXPECT_GT(result.probes["worker_lost"], 100);
  EXPECT_GT(result.probes["decided for join"], 20);
}

INSTANTIATE_TEST_SUITE_P(Speeds,
                         SpotTest,
                         ::testing::Values(std::pair(60, 0.865), std::pair(6, 0.975)),
                         [](const auto& test) {
                           return "TimesAsFast" + std::to_string(test.param.first);
                         });

}  // namespace
}  // namespace heddle::elastic
