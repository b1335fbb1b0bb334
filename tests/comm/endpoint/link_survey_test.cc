// Which transports join pairs: what a list allows, and what the survey says about each.
#include "comm/endpoint/link_survey.h"

#include <algorithm>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "comm/cost/islands.h"
#include "comm/transport/transport.h"
#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

TEST(TransportsTest, APairTakesTheFirstOfTheList) {
  for (const auto& [list, taken] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{}, "shm"}, {{"shm", "tcp"}, "shm"}, {{"tcp", "shm"}, "tcp"}, {{"tcp"}, "tcp"}}) {
    Cluster cluster(2, Media::kShm);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(cluster.SetTransports(rank, list).ok());
    }
    cluster.Run(1, [&wanted = taken](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.transport(1 - rank), wanted);
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
  }
}

TEST(TransportsTest, AListThatCannotServeIsSaid) {
  Cluster cluster(2, Media::kTcp);  // Without shared memory.
  ASSERT_TRUE(cluster.SetTransports(0, {"shm"}).ok());
  const auto communicator = cluster.endpoint(0).Connect(cluster.Options(0, 1), After(kAmple));
  EXPECT_EQ(communicator.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(communicator.status().message().find("no transport"), std::string::npos)
      << communicator.status().ToString();

  EXPECT_EQ(cluster.SetTransports(0, {"pigeon"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.SetTransports(0, {"tcp", "tcp"}).code(), StatusCode::kInvalidArgument);
}

// Both ends hold the same figures; what they say is true, whatever the machine is like.
TEST(TransportsTest, APairTakesTheCheapestThatItMeasured) {
  for (const bool tcp_is_cheap : {true, false}) {
    Cluster cluster(2, Media::kShm);
    const Link cheap{.latency_seconds = 1e-6, .bytes_per_second = 9e9};
    const Link dear{.latency_seconds = 1e-3, .bytes_per_second = 1e8};
    const Link& tcp = tcp_is_cheap ? cheap : dear;
    const Link& shm = tcp_is_cheap ? dear : cheap;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        GroupOptions options = cluster.Options(rank, 1);
        for (GroupMember& member : options.members) {
          member.transports = {{"tcp", tcp, tcp}, {"shm", shm, shm}};
        }
        const auto group = cluster.endpoint(rank).Connect(options, After(kAmple));
        ASSERT_TRUE(group.ok()) << group.status().ToString();
        const std::string wanted = tcp_is_cheap ? "tcp" : "shm";
        EXPECT_EQ((*group)->transport(1 - rank), wanted);
        EXPECT_TRUE((*group)->Barrier({}).ok());
        metrics::Registry& registry = cluster.registry(rank);
        const auto pairs = [&](const std::string& reason) {
          return registry
              .GetGauge("heddle_comm_pair_transport", "",
                        {{"transport", wanted}, {"reason", reason}})
              .Value();
        };
        EXPECT_EQ(pairs("cheapest"), 1);
        EXPECT_EQ(pairs("fallback"), 0);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

// The dialler goes on to the next way, and both ends call it what it is.
TEST(TransportsTest, WhatIsCheapestAndDoesNotLeadThereIsPassedOver) {
  Cluster cluster(2, Media::kTcp);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      const Link link{.latency_seconds = 1e-6, .bytes_per_second = 9e9};
      for (GroupMember& member : options.members) {
        member.transports = {{"shm", link, link}};
      }
      const auto group = cluster.endpoint(rank).Connect(options, After(kAmple));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      EXPECT_EQ((*group)->transport(1 - rank), "tcp");
      EXPECT_TRUE((*group)->Barrier({}).ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A busy process' port: the kernel connects, and nobody says anything in the short time of a way
// that has others. None of them leads there, so it is asked again, and what it says then is what is
// told.
TEST(TransportsTest, WhatIsCheapestIsTriedAgainWhenNothingElseLeadsThere) {
  Cluster cluster(2, Media::kShm);
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = static_cast<sockaddr*>(static_cast<void*>(&address));
  ASSERT_EQ(::bind(silent.get(), raw, size), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), raw, &size), 0);

  GroupOptions options = cluster.Options(0, 1);
  options.route_timeout = std::chrono::milliseconds(100);
  auto parts = ParseAddress(options.members[1].address);
  ASSERT_TRUE(parts.ok());
  (*parts)["tcp"] = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  (*parts)["shm"] = "nobody-listens-here";
  options.members[1].address = FormatAddress(*parts);
  const Link link{.latency_seconds = 1e-6, .bytes_per_second = 9e9};
  options.members[1].transports = {{"tcp", link, link}};
  const Time began = Now();
  const auto none = cluster.endpoint(0).Connect(options, After(std::chrono::hours(1)));
  EXPECT_EQ(none.status().code(), StatusCode::kDeadlineExceeded) << none.status().ToString();
  EXPECT_THAT(none.status().message(), testing::HasSubstr("in the handshake"));
  EXPECT_GE(Now() - began, std::chrono::seconds(2)) << "it has all of a handshake's time";
}

// A group's own list: both ends say that it leads nowhere, and do not wait for each other.
TEST(TransportsTest, AGroupMayHaveAListOfItsOwn) {
  Cluster cluster(2, Media::kTcp);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      GroupOptions options = cluster.Options(rank, 1);
      options.transports = {"shm"};
      const auto none = cluster.endpoint(rank).Connect(options, After(kAmple));
      EXPECT_EQ(none.status().code(), StatusCode::kUnavailable) << none.status().ToString();
      options.generation = 2;
      options.transports = {"tcp"};
      const auto group = cluster.endpoint(rank).Connect(options, After(kAmple));
      ASSERT_TRUE(group.ok()) << group.status().ToString();
      EXPECT_TRUE((*group)->Barrier({}).ok());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  GroupOptions options = cluster.Options(0, 3);
  options.transports = {"pigeon"};
  EXPECT_EQ(cluster.endpoint(0).Connect(options, Now()).status().code(),
            StatusCode::kInvalidArgument);
}

SurveyOptions Ample() {
  SurveyOptions options;
  options.pair_timeout = kAmple;
  return options;
}

TEST(LinkSurveyTest, EveryPairTellsWhatItUsesAndWhyNotTheOthers) {
  SurveyOptions options = Ample();
  options.workers = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  ASSERT_EQ(survey->pairs.size(), 3u);
  for (const PairSurvey& pair : survey->pairs) {
    EXPECT_LT(pair.lower, pair.higher);
    std::vector<MeasuredTransport> measured;
    ASSERT_EQ(pair.trials.size(), 3u);
    for (const TransportTrial& trial : pair.trials) {
      if (trial.transport == "verbs" && !trial.status.ok()) {
        EXPECT_FALSE(trial.status.message().empty());
        continue;
      }
      ASSERT_TRUE(trial.status.ok()) << trial.transport << ": " << trial.status.ToString();
      EXPECT_EQ(trial.there.transport, trial.transport);
      EXPECT_GT(trial.there.bytes_per_second, 0);
      EXPECT_GT(trial.back.bytes_per_second, 0);
      EXPECT_GT(trial.there.latency_seconds, 0);
      measured.push_back({.transport = trial.transport, .there = trial.there, .back = trial.back});
    }
    // Which one that is depends on what else the machine does.
    const auto choice = ChooseTransport({.list = {"shm", "verbs", "tcp"}}, measured);
    EXPECT_EQ(pair.chosen, choice.transport);
    EXPECT_EQ(survey->links.At(pair.lower, pair.higher).transport, choice.transport);
  }
}

TEST(LinkSurveyTest, TheListOfAJobDecides) {
  SurveyOptions options = Ample();
  options.workers = {{.name = "a"}, {.name = "b"}};
  options.transports = {"tcp", "shm"};
  options.rule = TransportRule::kFirst;
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  EXPECT_EQ(survey->pairs[0].chosen, "tcp");
  EXPECT_EQ(survey->links.At(1, 0).transport, "tcp");
  EXPECT_EQ(survey->islands, (std::vector<std::vector<int>>{{0, 1}}));
}

// RDMA stands in the list and this machine has none: by the list's order that is said, by cost it
// does not matter.
TEST(LinkSurveyTest, WhatTheListHasBeforeAndDoesNotWorkIsSaid) {
  if (!RdmaDevice().empty()) {
    GTEST_SKIP() << "everything works here";
  }
  SurveyOptions options = Ample();
  options.workers = {{.name = "a"}, {.name = "b"}};
  options.transports = {"verbs", "tcp", "shm"};
  options.rule = TransportRule::kFirst;
  auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  EXPECT_EQ(survey->pairs[0].chosen, "tcp");
  EXPECT_EQ(survey->pairs[0].reason, "first of the list that works; not verbs");
  options.transports = {"tcp", "verbs"};
  survey = SurveyLinks(options);
  EXPECT_EQ(survey->pairs[0].reason, "first of the list");
  options.transports = {"verbs", "tcp"};
  options.rule = TransportRule::kCheapest;
  survey = SurveyLinks(options);
  EXPECT_EQ(survey->pairs[0].reason, "the only one that joins them");
  options.transports = {"verbs"};
  survey = SurveyLinks(options);
  EXPECT_EQ(survey->pairs[0].chosen, "");
  EXPECT_EQ(survey->pairs[0].reason, "nothing joins them: not verbs");
  EXPECT_EQ(survey->links.At(0, 1).bytes_per_second, 0);
  EXPECT_EQ(survey->links.At(1, 0).latency_seconds, 0);
  EXPECT_EQ(survey->islands, (std::vector<std::vector<int>>{{0}, {1}}));
}

// An emulated link of 8 Mbit/s on one of three workers: the measurement sees it, and the islands
// are those of what was measured. What makes one, IslandsTest says: here a busy machine may.
TEST(LinkSurveyTest, AnEmulatedLinkIsSeenFromBothItsPairs) {
  constexpr double kRate = 1e6;
  SurveyOptions options = Ample();
  options.workers = {{.name = "a"}, {.name = "b", .link_bytes_per_second = kRate}, {.name = "c"}};
  options.transports = {"tcp"};
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  for (const int other : {0, 2}) {
    for (const Link& link : {survey->links.At(other, 1), survey->links.At(1, other)}) {
      EXPECT_GT(link.bytes_per_second, 0);
      EXPECT_LT(link.bytes_per_second, 3 * kRate) << "no more is believed than twice as much";
    }
  }
  EXPECT_EQ(survey->islands, FindIslands(survey->links));
}

TEST(LinkSurveyTest, BadOptionsAreRefused) {
  EXPECT_EQ(SurveyLinks({}).status().code(), StatusCode::kInvalidArgument);
  SurveyOptions options = Ample();
  options.workers = {{.name = "a"}, {.name = "b"}};
  options.transports = {"smoke"};
  EXPECT_EQ(SurveyLinks(options).status().code(), StatusCode::kInvalidArgument);
  options.transports = {};
  options.bind_host = "192.0.2.1";  // TEST-NET-1: nobody's.
  EXPECT_EQ(SurveyLinks(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::comm
