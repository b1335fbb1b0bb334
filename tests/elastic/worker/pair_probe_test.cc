// Two workers measure the links between them; one that is not there costs the other a bounded time.
#include "elastic/worker/measure/pair_probe.h"

#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

class PairProbeTest : public testing::Test {
 protected:
  PairProbeTest() {
    for (auto* probe : {&lower_, &higher_}) {
      auto made = PairProbe::Create(comm::EndpointOptions());
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      *probe = *std::move(made);
      (*probe)->SetJob({.worker = "w", .job = "job", .secret = "secret"});
    }
  }
  wire::MeasureLinks Request(int64_t number, int rank, const std::vector<std::string>& transports) {
    wire::MeasureLinks request;
    request.set_request(number);
    request.set_rank(rank);
    request.set_seconds(60);
    for (const auto* probe : {&lower_, &higher_}) {
      wire::Member& member = *request.add_members();
      member.set_name(probe == &lower_ ? "a" : "b");
      member.set_address((*probe)->address());
    }
    for (const std::string& transport : transports) {
      request.add_transports(transport);
    }
    return request;
  }
  // Again where a machine with too much to do let the bound of a trial pass.
  std::pair<wire::LinksMeasured, wire::LinksMeasured> Both(
      const std::vector<std::string>& transports) {
    wire::LinksMeasured there;
    wire::LinksMeasured back;
    for (int attempt = 0; attempt < 10; ++attempt) {
      number_ += 8;
      std::thread other([&] { back = higher_->Measure(Request(number_, 1, transports)); });
      there = lower_->Measure(Request(number_, 0, transports));
      other.join();
      const bool late = [&] {
        for (const auto* answer : {&there, &back}) {
          for (const auto& link : answer->links()) {
            if (link.transport() != "verbs" && !link.error().empty()) {
              return true;
            }
          }
        }
        return false;
      }();
      if (!late) {
        break;
      }
    }
    return {there, back};
  }

  int64_t number_ = 0;

  std::unique_ptr<PairProbe> lower_;
  std::unique_ptr<PairProbe> higher_;
};

TEST_F(PairProbeTest, MeasuresEachTransportThatJoinsThem) {
  for (int time = 0; time < 2; ++time) {
    const auto [there, back] = Both({"shm", "verbs", "tcp"});
    for (const wire::LinksMeasured& answer : {there, back}) {
      EXPECT_EQ(answer.request(), number_);
      EXPECT_EQ(answer.error(), "");
      ASSERT_EQ(answer.links_size(), 3);
      for (const wire::LinksMeasured::Link& link : answer.links()) {
        if (link.transport() == "verbs") {  // An endpoint at a loopback address has none.
          EXPECT_NE(link.error(), "");
          continue;
        }
        EXPECT_EQ(link.error(), "");
        EXPECT_GT(link.latency_seconds(), 0);
        EXPECT_GT(link.bytes_per_second(), 0);
        EXPECT_TRUE(std::isfinite(link.bytes_per_second()));
      }
    }
  }
}

TEST_F(PairProbeTest, AnEmulatedLinkIsSeen) {
  higher_->SetLinkRate(5e6);
  // No machine makes it faster; a latency of another moment may take half of the time for its own,
  // and the first bytes are free.
  const auto [there, back] = Both({"tcp"});
  for (const wire::LinksMeasured& answer : {there, back}) {
    ASSERT_EQ(answer.links_size(), 1);
    EXPECT_GT(answer.links(0).bytes_per_second(), 0);
    EXPECT_LE(answer.links(0).bytes_per_second(), 2e7);
  }
}

TEST_F(PairProbeTest, WhoIsAloneEnds) {
  const wire::LinksMeasured alone = higher_->Measure(Request(4, 1, {"shm", "tcp"}));
  ASSERT_EQ(alone.links_size(), 2);
  for (const auto& link : alone.links()) {
    EXPECT_NE(link.error(), "");
  }
  // The measurement that follows goes well.
  EXPECT_EQ(Both({"tcp"}).first.links(0).error(), "");
}

TEST_F(PairProbeTest, WhatFailsAtOnceAtOneEndDoesNotCostTheOthersTheirTurn) {
  for (const bool dialler : {true, false}) {  // Whose attempt fails, while the other's waits.
    wire::LinksMeasured there;
    wire::LinksMeasured back;
    for (int attempt = 0; attempt < 5; ++attempt) {
      number_ += 8;
      const std::vector<std::string> fails{"pigeon", "tcp"};
      const std::vector<std::string> waits{"tcp", "tcp"};
      std::thread other(
          [&] { back = higher_->Measure(Request(number_, 1, dialler ? waits : fails)); });
      there = lower_->Measure(Request(number_, 0, dialler ? fails : waits));
      other.join();
      ASSERT_EQ(there.links_size(), 2);
      ASSERT_EQ(back.links_size(), 2);
      EXPECT_NE(there.links(0).error(), "");
      EXPECT_NE(back.links(0).error(), "");
      if (there.links(1).error().empty() && back.links(1).error().empty()) {
        break;
      }
    }
    EXPECT_EQ(there.links(1).error(), "");
    EXPECT_EQ(back.links(1).error(), "");
  }
}

TEST_F(PairProbeTest, StopEndsAMeasurementThatHasBegun) {
  std::thread other([&] {
    const auto answer =
        higher_->Measure(Request(8, 1, {"tcp", "tcp", "tcp", "tcp", "tcp", "tcp", "tcp"}));
    for (const auto& link : answer.links()) {  // No time passed that a trial may take.
      EXPECT_THAT(link.error(), ::testing::HasSubstr("has begun"));
    }
  });
  higher_->Stop();
  other.join();
}

TEST_F(PairProbeTest, NonsenseIsRefused) {
  const auto refused = [&](const auto& spoil) {
    wire::MeasureLinks request = Request(8, 0, {"tcp"});
    spoil(request);
    const wire::LinksMeasured answer = lower_->Measure(request);
    return !answer.error().empty() && answer.links_size() == 0;
  };
  EXPECT_TRUE(refused([](auto& request) { request.add_members(); }));
  EXPECT_TRUE(refused([](auto& request) { request.set_rank(2); }));
  EXPECT_TRUE(refused([](auto& request) { request.set_request(0); }));
  EXPECT_TRUE(refused([](auto& request) { request.set_seconds(0); }));
  EXPECT_TRUE(refused(
      [](auto& request) { request.set_seconds(std::numeric_limits<double>::quiet_NaN()); }));
  EXPECT_TRUE(refused([](auto& request) {
    for (int i = 0; i < 8; ++i) {
      request.add_transports("tcp");
    }
  }));
  // Another's address, or no transport: said of that one.
  wire::MeasureLinks request = Request(8, 0, {"pigeon", "tcp"});
  request.mutable_members(1)->set_address("nonsense");
  const wire::LinksMeasured answer = lower_->Measure(request);
  ASSERT_EQ(answer.links_size(), 2);
  EXPECT_NE(answer.links(0).error(), "");
  EXPECT_NE(answer.links(1).error(), "");
}

}  // namespace
}  // namespace heddle::elastic
