#include "base/units.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/support/seed.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(UnitsTest, ReadsSizes) {
  EXPECT_EQ(ParseByteSize("1GiB")->value, 1073741824);
  EXPECT_EQ(ParseByteSize("64MiB")->value, 67108864);
  EXPECT_EQ(ParseByteSize("500MB")->value, 500000000);
  EXPECT_EQ(ParseByteSize("1.5KiB")->value, 1536);
  EXPECT_EQ(ParseByteSize("2 kB")->value, 2000);
  EXPECT_EQ(ParseByteSize("0B")->value, 0);
}

TEST(UnitsTest, ReadsRatesAsBytesPerSecond) {
  EXPECT_EQ(ParseByteRate("1Gbit")->value, 125e6);
  EXPECT_EQ(ParseByteRate("100Mbit")->value, 12.5e6);
  EXPECT_EQ(ParseByteRate("100Mbit/s")->value, 12.5e6);
  EXPECT_EQ(ParseByteRate("10MB/s")->value, 10e6);
  EXPECT_EQ(ParseByteRate("1GiB/s")->value, 1073741824.0);
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("2s"), seconds(2));
  EXPECT_EQ(*ParseDuration("5m"), minutes(5));
  EXPECT_EQ(*ParseDuration("1.5h"), minutes(90));
  EXPECT_EQ(*ParseDuration("0s"), Duration(0));
}

TEST(UnitsTest, RefusesWhatIsAmbiguousAndSaysWhatToWrite) {
  for (const char* text : {"", "500", "MiB", "-1MiB", "1mib", "1 GiB ", "0x10MiB", "0.3KiB",
                           "infGiB", "1e300GiB", "1..5GiB", "10Mbit", "1G", "+1GiB"}) {
    const auto size = ParseByteSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find("64MiB"), std::string::npos);
  }
  for (const char* text : {"", "10", "10MB", "0Gbit", "1Gbps", "-1Gbit", "1e999Gbit"}) {
    EXPECT_FALSE(ParseByteRate(text).ok()) << text;
  }
  for (const char* text : {"", "500", "5min", "-2s", "1e30d", "nan s", "2 S"}) {
    const auto duration = ParseDuration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_EQ(
        duration.status().message(),
        fmt::format("expected a duration, got '{}' (write a number and a unit: 500ms, 2s, 5m)",
                    text));
  }
}

TEST(UnitsTest, PrintsTheShortestForm) {
  EXPECT_EQ(FormatByteSize({int64_t{64} << 20}), "64MiB");
  EXPECT_EQ(FormatByteSize({500000000}), "500MB");
  EXPECT_EQ(FormatByteSize({1001}), "1001B");
  EXPECT_EQ(FormatByteSize({0}), "0B");
  EXPECT_EQ(FormatByteRate({125e6}), "1Gbit");
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1500ms");
  EXPECT_EQ(FormatDuration(minutes(120)), "2h");
  EXPECT_EQ(FormatDuration(Duration(0)), "0s");
}

TEST(UnitsTest, WhatIsPrintedReadsAsTheSameValue) {
  Random random(testing::TestSeed());
  for (int i = 0; i < 2000; ++i) {
    const ByteSize size{static_cast<int64_t>(random.Next() >> (11 + random.Below(53)))};
    EXPECT_EQ(ParseByteSize(FormatByteSize(size))->value, size.value);
    const Duration duration(static_cast<int64_t>(random.Next() >> (11 + random.Below(53))));
    EXPECT_EQ(*ParseDuration(FormatDuration(duration)), duration);
    const ByteRate rate{(random.Uniform() + 1e-9) * 1e12};
    EXPECT_NEAR(ParseByteRate(FormatByteRate(rate))->value / rate.value, 1, 1e-15);
  }
}

}  // namespace
}  // namespace heddle
