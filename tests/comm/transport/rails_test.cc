// Which port of one worker talks to which of another, and what workers say of their ports.
#include "comm/transport/verbs/rails.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

using testing::ElementsAre;

Rail On(const std::string& network, double gigabits = 100, bool near = true) {
  return {.kind = RdmaKind::kRoce,
          .bytes_per_second = gigabits * 1e9 / 8,
          .near = near,
          .network = network,
          .listener = "10.0.0.1:1"};
}

Rail OfKind(RdmaKind kind, const std::string& network) {
  Rail rail = On(network);
  rail.kind = kind;
  return rail;
}

bool operator==(const Rail& a, const Rail& b) {
  return a.kind == b.kind && a.bytes_per_second == b.bytes_per_second && a.near == b.near &&
         a.network == b.network && a.listener == b.listener;
}

struct Case {
  std::string what;
  std::vector<Rail> own;
  std::vector<Rail> peer;
  size_t number = 0;
  std::vector<RailPair> avoid;
  std::vector<RailPair> expected;
};

std::vector<Case> Cases() {
  const std::vector<Rail> two{On("a"), On("b")};
  const std::vector<Rail> flat{On("a"), On("a")};
  const std::vector<Rail> routed{On("x"), On("y")};
  const std::vector<Rail> four{On("a"), On("b"), On("c"), On("d")};
  return {
      {"one port each", {On("a")}, {On("a")}, 7, {}, {{0, 0}}},
      {"no port there", {On("a")}, {}, 0, {}, {}},
      {"other kinds", {On("a")}, {OfKind(RdmaKind::kIwarp, "a")}, 0, {}, {}},
      {"the kind that both have",
       {OfKind(RdmaKind::kInfiniBand, "f"), On("a")},
       {On("a"), OfKind(RdmaKind::kIwarp, "f")},
       0,
       {},
       {{1, 0}}},
      {"two networks", two, two, 0, {}, {{0, 0}, {1, 1}}},
      {"two networks, the next connection", two, two, 1, {}, {{1, 1}, {0, 0}}},
      {"ports in another order", two, {On("b"), On("a")}, 0, {}, {{0, 1}, {1, 0}}},
      {"one network", flat, flat, 1, {}, {{1, 1}, {0, 0}, {1, 0}}},
      {"one port to two", {On("a")}, flat, 1, {}, {{0, 1}, {0, 0}}},
      {"two ports to one", flat, {On("a")}, 1, {}, {{1, 0}, {0, 0}}},
      {"a network that only one has", two, {On("c"), On("b")}, 0, {}, {{1, 1}}},
      {"routers between", two, routed, 1, {}, {{1, 1}, {0, 0}, {1, 0}}},
      {"unknown networks", {On("")}, {On("")}, 0, {}, {{0, 0}}},
      {"no more attempts than three", four, four, 2, {}, {{2, 2}, {3, 3}, {0, 0}}},
      {"the faster first", {On("a", 25), On("b", 100)}, two, 0, {}, {{1, 1}, {0, 0}}},
      {"as fast as the slower end", two, {On("a", 200), On("b", 50)}, 1, {}, {{0, 0}, {1, 1}}},
      {"the nearer of equals", {On("a", 100, false), On("b")}, two, 0, {}, {{1, 1}, {0, 0}}},
      {"speed before nearness",
       {On("a", 200, false), On("b", 100)},
       {On("a", 200), On("b", 200)},
       1,
       {},
       {{0, 0}, {1, 1}}},
      {"one that failed", two, two, 0, {{0, 0}}, {{1, 1}}},
      {"one that failed, others left", flat, flat, 0, {{0, 0}}, {{0, 1}, {1, 0}, {1, 1}}},
      {"all have failed", two, two, 1, {{0, 0}, {1, 1}}, {{1, 1}}},
  };
}

TEST(ChooseRailsTest, Table) {
  for (const Case& test : Cases()) {
    EXPECT_EQ(ChooseRails(test.own, test.peer, test.number, test.avoid), test.expected)
        << test.what;
  }
}

TEST(ChooseRailsTest, ConnectionsSpreadOverPortsEvenly) {
  for (const size_t ports : {2U, 4U, 8U}) {
    std::vector<Rail> rails;
    for (size_t i = 0; i < ports; ++i) {
      rails.push_back(On("network" + std::to_string(i)));
    }
    const auto first = [&](int rank, int peer, bool urgent) {
      return ChooseRails(rails, rails, ConnectionNumber(rank, peer, urgent), {}).front().own;
    };
    std::map<size_t, int> uses;
    constexpr int kWorkers = 16;
    for (int rank = 0; rank < kWorkers; ++rank) {
      for (int peer = rank + 1; peer < kWorkers; ++peer) {
        EXPECT_NE(first(rank, peer, false), first(rank, peer, true));
        ++uses[first(rank, peer, false)];
      }
      // Its neighbours in a ring.
      EXPECT_NE(first(rank, (rank + 1) % kWorkers, false),
                first((rank + kWorkers - 1) % kWorkers, rank, false))
          << ports << " " << rank;
    }
    constexpr int kPairs = kWorkers * (kWorkers - 1) / 2;
    for (size_t i = 0; i < ports; ++i) {
      EXPECT_NEAR(uses[i], kPairs / static_cast<double>(ports), kPairs * 0.05) << i;
    }
  }
}

TEST(ParseRailsTest, WhatIsSaidIsHeard) {
  const std::vector<Rail> rails{On("10.9.0.0-24"),
                                {.kind = RdmaKind::kInfiniBand,
                                 .bytes_per_second = 0,
                                 .near = false,
                                 .network = "",
                                 .listener = "fd00::7:4711"}};
  EXPECT_EQ(FormatRails(rails),
            "roce/12500000000/near/10.9.0.0-24/10.0.0.1:1,infiniband/0/far//fd00::7:4711");
  const auto heard = ParseRails(FormatRails(rails));
  ASSERT_TRUE(heard.ok()) << heard.status().ToString();
  ASSERT_EQ(heard->size(), rails.size());
  EXPECT_TRUE((*heard)[0] == rails[0] && (*heard)[1] == rails[1]);
}

TEST(ParseRailsTest, OtherFormsAreRefused) {
  const std::string good = "roce/1/near/n/h:1";
  EXPECT_TRUE(ParseRails(good).ok());
  std::string most = good;
  for (size_t i = 1; i < kMaxRails; ++i) {
    most += "," + good;
  }
  EXPECT_TRUE(ParseRails(most).ok());
  const std::string long_name(81, 'x');
  for (const std::string& text :
       {std::string(), std::string("roce"), std::string("roce/1/near/n"),
        std::string("unknown/1/near/n/h:1"), std::string("roce/-1/near/n/h:1"),
        std::string("roce/1x/near/n/h:1"), std::string("roce/99999999999999999999/near/n/h:1"),
        std::string("roce/1/nearer/n/h:1"), std::string("roce/1/near/n/h"),
        std::string("roce/1/near/n/h:1/more"), std::string("roce/1/near/a b/h:1"),
        std::string("roce/1/near/n/h\n:1"), std::string("roce/1/near/n;tcp=x/h:1"),
        "roce/1/near/" + long_name + "/h:1", "roce/1/near/n/" + long_name + ":1", most + "," + good,
        "," + good, good + ",,"}) {
    EXPECT_FALSE(ParseRails(text).ok()) << text;
  }
}

}  // namespace
}  // namespace heddle::comm
