// When a measurement of bandwidth is over, and what it says, on links that are arithmetic.
#include "comm/endpoint/measure.h"

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

using std::chrono::milliseconds;

constexpr MeasureBudget kBudget{
    .long_enough = milliseconds(8), .most_bytes = int64_t{4} << 20, .bandwidth = milliseconds(100)};

struct Outcome {
  double rate = 0;
  int64_t sent = 0;
  double seconds = 0;
};

// As Pair::Bandwidth: each message is announced, which takes a round trip of its own.
Outcome MeasureLinkOf(double latency, double bytes_per_second) {
  Outcome outcome;
  TimedMessage message{.latency_seconds = latency};
  for (int64_t bytes = 16 << 10; bytes != 0;) {
    message.bytes = bytes;
    const double took = 2 * latency + static_cast<double>(bytes) / bytes_per_second;
    message.took = FromSeconds(took);
    outcome.seconds += 2 * latency + took;
    outcome.sent += bytes;
    bytes = NextMeasureBytes(message, FromSeconds(outcome.seconds), kBudget);
  }
  outcome.rate = RateOf(message);
  return outcome;
}

TEST(MeasureTest, TheRateOfALinkIsFoundWhateverItsLatency) {
  for (const double latency : {0.0, 1e-6, 20e-6, 1e-3, 5e-3, 10e-3}) {
    for (const double rate : {1e6, 10e6, 100e6}) {
      const Outcome outcome = MeasureLinkOf(latency, rate);
      EXPECT_NEAR(outcome.rate, rate, 0.15 * rate) << latency;
      EXPECT_LT(outcome.seconds, 0.3) << latency << " s, " << rate;
    }
  }
  EXPECT_NEAR(MeasureLinkOf(1e-6, 20e9).rate, 20e9, 1e9);
}

TEST(MeasureTest, AFarLinkEndsInTimeAndIsNoFasterThanItIs) {
  for (const double latency : {25e-3, 75e-3, 1.0}) {
    const Outcome outcome = MeasureLinkOf(latency, 1e9);
    EXPECT_LE(outcome.seconds, 0.1 + 4 * latency + 8e-3);
    EXPECT_LE(outcome.rate, 1.02e9);
  }
}

TEST(MeasureTest, ASlowLinkCarriesFewBytes) {
  EXPECT_LE(MeasureLinkOf(1e-5, 1e6).sent, 16 << 10);
  EXPECT_LE(MeasureLinkOf(1e-5, 10e6).sent, 400 << 10);
}

// Of another time: more than the message took.
TEST(MeasureTest, ALatencyThatIsTooHighDoesNotMakeARateOfNothing) {
  const TimedMessage message{.bytes = 1000, .took = milliseconds(4), .latency_seconds = 1};
  EXPECT_DOUBLE_EQ(RateOf(message), 0.5e6);
  EXPECT_EQ(NextMeasureBytes(message, milliseconds(4), kBudget), 16000);
  EXPECT_EQ(NextMeasureBytes(message, milliseconds(100), kBudget), 0);
}

}  // namespace
}  // namespace heddle::comm
