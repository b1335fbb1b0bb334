// The middle of a link's rounds, and how far they lie apart.
#include "elastic/worker/measure/link_probe.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

std::vector<comm::Link> Rounds(const std::vector<double>& figures) {
  std::vector<comm::Link> rounds;
  for (const double figure : figures) {
    rounds.push_back(
        {.latency_seconds = figure, .bytes_per_second = 100 * figure, .transport = "tcp"});
  }
  return rounds;
}

TEST(LinkProbeTest, OneRoundThatWasDisturbedDoesNotCount) {
  const MeasuredLink link = MedianOf(Rounds({4, 1000, 3, 5, 2}));
  EXPECT_EQ(link.link.latency_seconds, 4);
  EXPECT_EQ(link.link.bytes_per_second, 400);
  EXPECT_EQ(link.link.transport, "tcp");
  // Sorted: 2, 3, 4, 5, 1000.
  EXPECT_EQ(link.latency_spread_seconds, 1);
  EXPECT_EQ(link.bytes_per_second_spread, 100);
}

TEST(LinkProbeTest, ASingleRoundHasNoSpread) {
  const MeasuredLink link = MedianOf(Rounds({7}));
  EXPECT_EQ(link.link.latency_seconds, 7);
  EXPECT_EQ(link.latency_spread_seconds, 0);
}

TEST(LinkProbeTest, TheMiddleOfTwoIsTheLesser) {
  const MeasuredLink link = MedianOf(Rounds({9, 5}));
  EXPECT_EQ(link.link.latency_seconds, 5);
  EXPECT_EQ(link.latency_spread_seconds, 2);
}

}  // namespace
}  // namespace heddle::elastic
