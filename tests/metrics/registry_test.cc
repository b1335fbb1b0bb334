#include "metrics/registry.h"

#include <barrier>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/thread.h"

namespace heddle::metrics {
namespace {

using testing::ElementsAre;

TEST(RegistryTest, AMetricAskedForTwiceIsTheSame) {
  Registry registry;
  Counter& first = registry.GetCounter("heddle_a_total", "A.", {{"peer", "w1"}});
  first.Add(2);
  first.Add(0.5);
  EXPECT_EQ(&registry.GetCounter("heddle_a_total", "ignored", {{"peer", "w1"}}), &first);
  EXPECT_NE(&registry.GetCounter("heddle_a_total", "A.", {{"peer", "w2"}}), &first);
  EXPECT_EQ(first.Value(), 2.5);
}

TEST(RegistryTest, CollectsByNameAndLabels) {
  Registry registry;
  registry.GetGauge("heddle_z", "Z.").Set(-1);
  registry.GetCounter("heddle_a_total", "A.", {{"peer", "w2"}}).Add(2);
  registry.GetCounter("heddle_a_total", "A.", {{"peer", "w1"}}).Add(1);
  const auto families = registry.Collect();
  ASSERT_EQ(families.size(), 2U);
  EXPECT_EQ(families[0].name, "heddle_a_total");
  EXPECT_EQ(families[0].help, "A.");
  EXPECT_EQ(families[0].samples[0].labels.at("peer"), "w1");
  EXPECT_EQ(families[0].samples[1].value, 2);
  EXPECT_EQ(families[1].kind, Registry::Kind::kGauge);
  EXPECT_EQ(families[1].samples[0].value, -1);
}

// A gauge of 0 says that what it tells of is 0; without a value it says nothing.
TEST(RegistryTest, AGaugeWithoutAValueIsNotThere) {
  Registry registry;
  Gauge& gauge = registry.GetGauge("heddle_c", "C.", {{"source", "live"}});
  registry.GetCounter("heddle_a_total", "A.");
  ASSERT_EQ(registry.Collect().size(), 1U) << "and not its family either";
  gauge.Set(0);
  ASSERT_EQ(registry.Collect().size(), 2U);
  EXPECT_EQ(registry.Collect()[1].samples[0].value, 0);
  gauge.Clear();
  EXPECT_EQ(registry.Collect().size(), 1U);
  registry.GetGauge("heddle_c", "C.", {{"source", "initial"}}).Set(2);
  ASSERT_EQ(registry.Collect().size(), 2U);
  EXPECT_EQ(registry.Collect()[1].samples.size(), 1U);
}

TEST(RegistryTest, HistogramsCountUpToTheirBoundsInclusively) {
  Histogram histogram({1, 2});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 2.5}) {
    histogram.Observe(value);
  }
  const Histogram::Snapshot snapshot = histogram.Read();
  EXPECT_THAT(snapshot.cumulative, ElementsAre(2, 4, 5));
  EXPECT_EQ(snapshot.sum, 7.5);
}

TEST(RegistryTest, NothingIsLostBetweenThreads) {
  constexpr int kThreads = 4;
  constexpr int kAdds = 1000000;
  Registry registry;
  std::barrier together(kThreads);
  {
    std::vector<Thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back("adder", [&] {
        Counter& counter = registry.GetCounter("heddle_a_total", "A.");
        Histogram& histogram = registry.GetHistogram("heddle_b_seconds", "B.", {1});
        together.arrive_and_wait();
        for (int j = 0; j < kAdds; ++j) {
          counter.Add(1);
        }
        for (int j = 0; j < kAdds / 10; ++j) {
          histogram.Observe(1);
        }
      });
    }
  }
  EXPECT_EQ(registry.GetCounter("heddle_a_total", "A.").Value(), kThreads * kAdds);
  EXPECT_EQ(registry.GetHistogram("heddle_b_seconds", "B.", {1}).Read().sum, kThreads * kAdds / 10);
}

TEST(RegistryDeathTest, ANameKeepsItsKind) {
  Registry registry;
  registry.GetCounter("heddle_a_total", "A.");
  EXPECT_DEATH(registry.GetGauge("heddle_a_total", "A."), "another kind");
  EXPECT_DEATH(registry.GetCounter("heddle_a_total", "A.").Add(-1), "never falls");
}

}  // namespace
}  // namespace heddle::metrics
