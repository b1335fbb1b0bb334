// What the coordinator tells of measured links, as the planner and the workers read it.
#include "elastic/planning/measurement.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/program/memory.h"

namespace heddle::elastic {
namespace {

wire::Links SomeLinks() {
  wire::Links links;
  links.add_places(0);
  links.add_places(1);
  wire::Links::Pair& pair = *links.add_pairs();
  pair.set_a(0);
  pair.set_b(1);
  wire::Links::Transport& tcp = *pair.add_transports();
  tcp.set_name("tcp");
  tcp.set_latency_seconds(1e-4);
  tcp.set_bytes_per_second(2e6);
  tcp.set_back_latency_seconds(2e-4);
  tcp.set_back_bytes_per_second(3e6);
  return links;
}

WorkerMeasurement SomeMeasurement() {
  WorkerMeasurement measurement;
  measurement.profile.worker = "a";
  measurement.profile.flops_per_second = measurement.profile.bytes_per_second = 1e9;
  measurement.link.link = {.latency_seconds = 1e-6, .bytes_per_second = 5e9, .transport = "shm"};
  return measurement;
}

std::vector<Candidate> TwoOfOneHost() {
  std::vector<Candidate> candidates;
  for (const char* name : {"a", "b"}) {
    candidates.push_back(
        {.name = name, .host = "host", .profile_json = MeasurementToJson(SomeMeasurement())});
  }
  return candidates;
}

TEST(MeasurementTest, FiguresThatNoMachineHasAreRefusedByName) {
  const auto why = [](const std::function<void(WorkerMeasurement&)>& change) {
    WorkerMeasurement measurement = SomeMeasurement();
    change(measurement);
    return std::string(MeasurementFromJson(MeasurementToJson(measurement)).status().message());
  };
  using Measured = WorkerMeasurement;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(why([](Measured&) {}), "");
  for (const double rate : {0.0, -1.0, 1e300, nan}) {
    EXPECT_NE(why([&](Measured& m) { m.profile.flops_per_second = rate; }), "") << rate;
    EXPECT_NE(why([&](Measured& m) { m.profile.bytes_per_second = rate; }), "") << rate;
    EXPECT_NE(why([&](Measured& m) { m.link.link.bytes_per_second = rate; }), "") << rate;
  }
  for (const double seconds : {-1.0, 1e300, nan}) {
    EXPECT_NE(why([&](Measured& m) { m.profile.seconds["fold"] = seconds; }), "") << seconds;
    EXPECT_NE(why([&](Measured& m) { m.profile.instruction_seconds = seconds; }), "") << seconds;
    EXPECT_NE(why([&](Measured& m) { m.link.link.latency_seconds = seconds; }), "") << seconds;
    EXPECT_NE(why([&](Measured& m) { m.link.latency_spread_seconds = seconds; }), "") << seconds;
    EXPECT_NE(why([&](Measured& m) { m.link.bytes_per_second_spread = seconds; }), "") << seconds;
    EXPECT_NE(why([&](Measured& m) { m.link.measured_at = seconds; }), "") << seconds;
  }
  for (const double figure : {-1.0, 1e300, nan}) {
    EXPECT_NE(why([&](Measured& m) { m.speed = figure; }), "") << figure;
    EXPECT_NE(why([&](Measured& m) { m.link_bytes_per_second = figure; }), "") << figure;
    EXPECT_NE(why([&](Measured& m) { m.profile_measured_at = figure; }), "") << figure;
    EXPECT_NE(why([&](Measured& m) { m.peer_bytes_per_second = figure; }), "") << figure;
  }
  EXPECT_NE(why([](Measured& m) { m.threads = 0; }), "");
  EXPECT_EQ(why([](Measured& m) { m.profile.flops_per_second = 0; }),
            "measurement: flops_per_second is 0, expected 1 to 1e+21");
  EXPECT_NE(std::string(MeasurementFromJson("[").status().message()), "");
  // Whoever joins may send it: it must not end the coordinator's stack.
  const std::string deep = R"({"profile": )" + std::string(1'000'000, '[') +
                           std::string(1'000'000, ']') + R"(, "link": {}})";
  EXPECT_NE(std::string(MeasurementFromJson(deep).status().message()), "");
}

TEST(MeasurementTest, ThePlannersLinksAreThoseOfThePair) {
  const auto measured = MeasuredLinksFrom(SomeLinks(), 2);
  ASSERT_TRUE(measured.ok()) << measured.status().ToString();
  const auto cluster =
      ClusterOf(TwoOfOneHost(), *measured, comm::TransportPreference{.list = {"shm", "tcp"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status().ToString();
  EXPECT_EQ(cluster->links.At(0, 1).bytes_per_second, 2e6);
  EXPECT_EQ(cluster->links.At(0, 1).transport, "tcp");
  EXPECT_EQ(cluster->links.At(1, 0).bytes_per_second, 3e6);
  EXPECT_EQ(cluster->links.At(1, 0).latency_seconds, 2e-4);
  const auto ends = ClusterOf(TwoOfOneHost());
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(ends->links.At(0, 1).transport, "shm");
  EXPECT_EQ(ends->links.At(0, 1).bytes_per_second, 5e9);
}

TEST(MeasurementTest, DevicesOfOneHostSumInEachOthersMemory) {
  std::vector<Candidate> candidates;
  const auto add = [&](const std::string& name, const std::string& host, double rate) {
    WorkerMeasurement measurement = SomeMeasurement();
    measurement.profile.memory_bytes = int64_t{8} << 30;
    measurement.peer_bytes_per_second = rate;
    candidates.push_back(
        {.name = name, .host = host, .profile_json = MeasurementToJson(measurement)});
  };
  add("a", "one", 4e11);
  add("b", "one", 3e11);
  add("processor", "one", 0);
  add("alone", "two", 4e11);
  // A pair that was measured keeps what its devices do.
  wire::Links links = SomeLinks();
  links.add_places(2);
  links.add_places(3);
  const auto cluster = ClusterOf(candidates, *MeasuredLinksFrom(links, 4),
                                 comm::TransportPreference{.list = {"shm", "tcp"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status().ToString();
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      EXPECT_EQ(cluster->links.At(from, to).peer_bytes_per_second, from + to == 1 ? 3e11
                                                                   : from == to && from != 2
                                                                       ? (from == 1 ? 3e11 : 4e11)
                                                                       : 0)
          << from << " to " << to;
    }
  }
  EXPECT_EQ(cluster->links.At(0, 1).transport, "tcp");
  for (const size_t with_peers : {0U, 1U}) {
    EXPECT_EQ(cluster->workers[with_peers].memory_bytes,
              (int64_t{8} << 30) - program::kMostSumBytes);
  }
  for (const size_t without : {2U, 3U}) {
    EXPECT_EQ(cluster->workers[without].memory_bytes, int64_t{8} << 30);
  }
}

TEST(MeasurementTest, WhatIsNoTableIsRefused) {
  EXPECT_TRUE(MeasuredLinksFrom({}, 2).ok());
  EXPECT_EQ(MeasuredLinksFrom(SomeLinks(), 3).status().code(), StatusCode::kInvalidArgument);
  const auto refused = [](const auto& spoil) {
    wire::Links links = SomeLinks();
    spoil(*links.mutable_pairs(0));
    return MeasuredLinksFrom(links, 2).status().code() == StatusCode::kInvalidArgument;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(refused([](auto& pair) { pair.set_b(2); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.set_a(-1); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.set_a(1), pair.set_b(0); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_bytes_per_second(0); }));
  EXPECT_TRUE(refused(
      [=](auto& pair) { pair.mutable_transports(0)->set_back_bytes_per_second(infinity); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_latency_seconds(-1); }));
  EXPECT_TRUE(refused(
      [=](auto& pair) { pair.mutable_transports(0)->set_back_latency_seconds(0 * infinity); }));
  // No link is of this world.
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_latency_seconds(0); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_latency_seconds(1e300); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_bytes_per_second(1e-9); }));
  EXPECT_TRUE(refused([](auto& pair) { pair.mutable_transports(0)->set_bytes_per_second(1e16); }));
}

}  // namespace
}  // namespace heddle::elastic
