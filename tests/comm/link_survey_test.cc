// Which transports join pairs: what a list allows, and what the survey says about each.
#include "comm/link_survey.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/comm/cluster.h"

namespace heddle::comm {
namespace {

TEST(TransportsTest, APairTakesTheFirstOfTheList) {
  for (const auto& [list, taken] :
       std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{}, "shm"}, {{"shm", "tcp"}, "shm"}, {{"tcp", "shm"}, "tcp"}, {{"tcp"}, "tcp"}}) {
    Cluster cluster(2, Media::kShm);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(cluster.endpoint(rank).SetTransports(list).ok());
    }
    cluster.Run(1, [&wanted = taken](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.transport(1 - rank), wanted);
      EXPECT_TRUE(communicator.Barrier({}).ok());
    });
  }
}

TEST(TransportsTest, AListThatCannotServeIsSaid) {
  Cluster cluster(2, Media::kTcp);  // Without shared memory.
  ASSERT_TRUE(cluster.endpoint(0).SetTransports({"shm"}).ok());
  const auto communicator =
      cluster.endpoint(0).Connect(cluster.Options(0, 1), After(std::chrono::seconds(5)));
  EXPECT_EQ(communicator.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(communicator.status().message().find("no transport"), std::string::npos)
      << communicator.status().ToString();

  EXPECT_EQ(cluster.endpoint(0).SetTransports({"pigeon"}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.endpoint(0).SetTransports({"tcp", "tcp"}).code(), StatusCode::kInvalidArgument);
}

TEST(LinkSurveyTest, EveryPairTellsWhatItUsesAndWhyNotTheOthers) {
  SurveyOptions options;
  options.workers = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  ASSERT_EQ(survey->pairs.size(), 3u);
  for (const PairSurvey& pair : survey->pairs) {
    EXPECT_EQ(pair.chosen, "shm");
    EXPECT_LT(pair.lower, pair.higher);
    ASSERT_EQ(pair.trials.size(), 3u);
    for (const TransportTrial& trial : pair.trials) {
      if (trial.transport == "verbs" && !trial.status.ok()) {
        EXPECT_FALSE(trial.status.message().empty());
        continue;
      }
      ASSERT_TRUE(trial.status.ok()) << trial.transport << ": " << trial.status.ToString();
      EXPECT_EQ(trial.there.transport, trial.transport);
      EXPECT_GT(trial.there.bytes_per_second, 1e7);
      EXPECT_GT(trial.back.bytes_per_second, 1e7);
      EXPECT_GT(trial.there.latency_seconds, 0);
    }
    EXPECT_EQ(survey->links.At(pair.lower, pair.higher).transport, "shm");
  }
}

TEST(LinkSurveyTest, TheListOfAJobDecides) {
  SurveyOptions options;
  options.workers = {{.name = "a"}, {.name = "b"}};
  options.transports = {"tcp", "shm"};
  options.rule = TransportRule::kFirst;
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  EXPECT_EQ(survey->pairs[0].chosen, "tcp");
  EXPECT_EQ(survey->links.At(1, 0).transport, "tcp");
  EXPECT_EQ(survey->islands, (std::vector<std::vector<int>>{{0, 1}}));
}

// An emulated link of 100 Mbit/s on one of three workers: the measurement sees it, and it is an
// island of its own.
TEST(LinkSurveyTest, AnEmulatedLinkMakesAnIsland) {
  SurveyOptions options;
  options.workers = {{.name = "a"}, {.name = "b", .link_bytes_per_second = 12.5e6}, {.name = "c"}};
  options.transports = {"tcp"};
  const auto survey = SurveyLinks(options);
  ASSERT_TRUE(survey.ok()) << survey.status().ToString();
  EXPECT_NEAR(survey->links.At(0, 1).bytes_per_second, 12.5e6, 4e6);
  EXPECT_EQ(survey->islands, (std::vector<std::vector<int>>{{0, 2}, {1}}));
}

TEST(LinkSurveyTest, BadOptionsAreRefused) {
  EXPECT_EQ(SurveyLinks({}).status().code(), StatusCode::kInvalidArgument);
  SurveyOptions options;
  options.workers = {{.name = "a"}, {.name = "b"}};
  options.transports = {"smoke"};
  EXPECT_EQ(SurveyLinks(options).status().code(), StatusCode::kInvalidArgument);
  options.transports = {};
  options.bind_host = "192.0.2.1";  // TEST-NET-1: nobody's.
  EXPECT_EQ(SurveyLinks(options).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::comm
