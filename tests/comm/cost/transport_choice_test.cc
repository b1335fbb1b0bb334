// Which transport a pair takes, from tables of what it measured, and the links that this gives.
#include "comm/cost/transport_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/cost/measured_links.h"

namespace heddle::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MeasuredTransport Measured(const std::string& name, double microseconds, double gigabytes) {
  const Link link{.latency_seconds = 1e-6 * microseconds,
                  .bytes_per_second = 1e9 * gigabytes,
                  .transport = name};
  return {name, link, link};
}

const TransportPreference kAll{.list = {"shm", "verbs", "tcp"}};

TEST(TransportChoiceTest, TheMixIsAnActivationAndAVoteBothWays) {
  MeasuredTransport measured = Measured("tcp", 10, 1);
  EXPECT_NEAR(MixSeconds(measured), 2 * 10e-6 + 262152e-9, 1e-12);
  measured.back.latency_seconds = 30e-6;
  measured.back.bytes_per_second = 0.5e9;
  EXPECT_NEAR(MixSeconds(measured), 2 * 20e-6 + 1.5 * 262152e-9, 1e-12);
}

TEST(TransportChoiceTest, TheCheapestWins) {
  struct Case {
    std::vector<MeasuredTransport> measured;
    std::string chosen;
  };
  const Case cases[] = {
      {{Measured("verbs", 5, 5), Measured("tcp", 30, 1)}, "verbs"},
      // A software device: slower than the kernel's TCP.
      {{Measured("verbs", 40, 0.3), Measured("tcp", 20, 2)}, "tcp"},
      // Latency and bandwidth pull in opposite directions: the sum decides.
      {{Measured("verbs", 5, 0.1), Measured("tcp", 50, 1)}, "tcp"},
      {{Measured("verbs", 500, 1), Measured("tcp", 10, 0.5)}, "tcp"},
      // A tie goes to the earlier in the list.
      {{Measured("tcp", 10, 1), Measured("verbs", 10, 1)}, "verbs"},
      // Only some were measured, or one.
      {{Measured("tcp", 10, 1)}, "tcp"},
      {{Measured("smoke", 1, 99), Measured("tcp", 10, 1)}, "tcp"},
  };
  for (const Case& c : cases) {
    const TransportChoice choice = ChooseTransport(kAll, c.measured);
    EXPECT_EQ(choice.transport, c.chosen) << choice.why;
    EXPECT_TRUE(choice.cheapest);
    EXPECT_EQ(choice.order.front(), c.chosen);
    EXPECT_EQ(choice.order.size(), 3u);
  }
}

TEST(TransportChoiceTest, SharedMemoryIsLeftOnlyWhenItIsClearlyDearer) {
  const MeasuredTransport shm = Measured("shm", 10, 1);
  const double cost = MixSeconds(shm);
  for (const auto& [factor, chosen] : {std::pair(0.55, "shm"), std::pair(0.45, "tcp")}) {
    MeasuredTransport tcp = Measured("tcp", 0, 1);
    tcp.there.bytes_per_second = tcp.back.bytes_per_second = 262152 / (factor * cost);
    const std::vector<MeasuredTransport> both{shm, tcp};
    EXPECT_EQ(ChooseTransport(kAll, both).transport, chosen) << factor;
    // A job that puts TCP first has no such wish.
    EXPECT_EQ(ChooseTransport({.list = {"tcp", "shm"}}, both).transport, "tcp");
  }
}

TEST(TransportChoiceTest, AnUnknownTransportIsNoSharedMemory) {
  for (const auto& [gigabytes, chosen] : {std::pair(0.9, "smoke"), std::pair(1.1, "tcp")}) {
    const std::vector<MeasuredTransport> both{Measured("smoke", 0, 1),
                                              Measured("tcp", 0, gigabytes)};
    EXPECT_EQ(ChooseTransport({.list = {"smoke", "tcp"}}, both).transport, chosen) << gigabytes;
  }
}

TEST(TransportChoiceTest, WithoutMeasurementsOrByRuleTheListDecides) {
  const TransportChoice unknown = ChooseTransport(kAll, {});
  EXPECT_EQ(unknown.transport, "shm");
  EXPECT_FALSE(unknown.cheapest);
  EXPECT_EQ(unknown.order, kAll.list);
  const std::vector<MeasuredTransport> measured{Measured("verbs", 90, 0.1), Measured("tcp", 1, 9)};
  const TransportPreference first{.list = kAll.list, .rule = TransportRule::kFirst};
  EXPECT_EQ(ChooseTransport(first, measured).transport, "verbs");
  EXPECT_FALSE(ChooseTransport(first, measured).cheapest);
  EXPECT_EQ(ChooseTransport({}, measured).transport, "");
}

TEST(TransportChoiceTest, WhatWasNotChosenIsFallenBackOnInTheListsOrder) {
  const std::vector<MeasuredTransport> measured{Measured("shm", 100, 0.1), Measured("tcp", 10, 1)};
  const TransportChoice choice = ChooseTransport(kAll, measured);
  EXPECT_THAT(choice.order, ElementsAre("tcp", "shm", "verbs"));
  EXPECT_THAT(choice.why, HasSubstr("cheapest: 10.0 us + 256 KiB at 1.00 GB/s against shm 100.0"));
}

TEST(MeasuredLinksTest, APairGetsWhatItsPlacesMeasured) {
  MeasuredLinks measured;
  measured.place = {1, 0, 1};
  MeasuredTransport tcp = Measured("tcp", 10, 1);
  tcp.there.bytes_per_second = 3e9;  // From place 0 to place 1.
  measured.pairs[{0, 1}] = {tcp, Measured("verbs", 500, 0.01)};
  ASSERT_EQ(measured.Between(1, 0).size(), 2u);
  EXPECT_EQ(measured.Between(1, 0)[0].there.bytes_per_second, 3e9);
  EXPECT_EQ(measured.Between(0, 1)[0].back.bytes_per_second, 3e9);
  EXPECT_TRUE(measured.Between(0, 2).empty());  // Within place 1 nothing was measured.
  EXPECT_TRUE(measured.Between(0, 3).empty());

  const LinkEnd end{.link = {.bytes_per_second = 8e9, .transport = "shm", .crowding = 2},
                    .host = "x"};
  const std::vector<LinkEnd> ends(3, end);
  const LinkTable links = LinksBetween(ends, measured, kAll);
  EXPECT_EQ(links.At(1, 0).bytes_per_second, 3e9);
  EXPECT_EQ(links.At(0, 1).bytes_per_second, 1e9);
  EXPECT_EQ(links.At(2, 1).bytes_per_second, 1e9);
  EXPECT_EQ(links.At(2, 1).transport, "tcp");
  EXPECT_EQ(links.At(2, 1).crowding, 2);
  EXPECT_EQ(links.At(0, 2).bytes_per_second, 8e9);  // By the ends.
  EXPECT_EQ(links.At(0, 2).transport, "shm");
  const LinkTable first =
      LinksBetween(ends, measured, {.list = {"verbs", "tcp"}, .rule = TransportRule::kFirst});
  EXPECT_EQ(first.At(1, 0).transport, "verbs");
  EXPECT_EQ(first.At(1, 0).bytes_per_second, 1e7);
}

TEST(MeasuredLinksTest, WithinAPlaceItIsAsItWasMeasured) {
  MeasuredTransport tcp = Measured("tcp", 10, 1);
  tcp.there.bytes_per_second = 3e9;
  MeasuredLinks measured;
  measured.place = {0, 0};
  measured.pairs[{0, 0}] = {tcp};
  for (const int from : {0, 1}) {
    ASSERT_EQ(measured.Between(from, 1 - from).size(), 1u);
    EXPECT_EQ(measured.Between(from, 1 - from)[0].there.bytes_per_second, 3e9);
    EXPECT_EQ(measured.Between(from, 1 - from)[0].back.bytes_per_second, 1e9);
  }
}

TEST(MeasuredLinksTest, WorkersBeyondThoseThatWereMeasuredHaveTheirEndsLinks) {
  MeasuredLinks measured;
  measured.place = {0, 1};
  measured.pairs[{0, 0}] = {Measured("tcp", 10, 5)};
  measured.pairs[{0, 1}] = {Measured("tcp", 10, 1)};
  EXPECT_TRUE(measured.Between(2, 0).empty());
  EXPECT_TRUE(measured.Between(0, 2).empty());
  EXPECT_EQ(measured.Between(0, 1).size(), 1u);
  EXPECT_EQ(measured.Between(1, 0).size(), 1u);
  EXPECT_EQ(measured.Between(0, 0)[0].there.bytes_per_second, 5e9) << "within a place";
  const LinkEnd end{.link = {.bytes_per_second = 8e9, .transport = "shm"}, .host = "x"};
  for (const size_t size : {1U, 2U, 3U}) {
    const LinkTable links = LinksBetween(std::vector<LinkEnd>(size, end), measured, kAll);
    ASSERT_EQ(links.size(), static_cast<int>(size));
    EXPECT_EQ(links.At(0, 0).bytes_per_second, 8e9) << "nobody's link to itself";
    for (int other = 1; other < links.size(); ++other) {
      EXPECT_EQ(links.At(0, other).bytes_per_second, other == 1 ? 1e9 : 8e9);
      EXPECT_EQ(links.At(other, 0).bytes_per_second, other == 1 ? 1e9 : 8e9);
    }
  }
}

}  // namespace
}  // namespace heddle::comm
