// Who is measured with whom, one host at a time, and what is kept of it.
#include "elastic/control/links/link_survey.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class LinkSurveyTest : public testing::Test {
 protected:
  LinkSurveyTest() { policy_.transports = {"tcp"}; }

  // A worker alone on its host, where none is named.
  void Add(const std::string& name,
           const std::string& host = "",
           const std::string& network = "",
           double link_rate = 0) {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, name.back()));
    hello.set_host(host.empty() ? "host-" + name : host);
    hello.set_network(network);
    hello.mutable_emulation()->set_link_bytes_per_second(link_rate);
    hello.set_probe_address("probe of " + name);
    connections_[next_] = name;
    roster_.Join(next_++, hello, now_);
    roster_.Welcome(name, false, Job(), 0, out_);
    roster_.TakeProfile(name, "{}");
    survey_.WorkerJoined(roster_.at(name));
    survey_.PlacesChanged();
    out_.Take();
  }
  bool Settled() { return survey_.Settled(roster_, policy_, now_, out_); }
  // "a-b 8": rank 0's requests since the last look; "durable": a Persist.
  std::vector<std::string> Notified() {
    std::vector<std::string> announced;
    for (const CoordinatorAction& action : out_.Take()) {
      if (std::holds_alternative<Persist>(action)) {
        announced.emplace_back("durable");
      } else if (const auto* send = std::get_if<Send>(&action)) {
        const wire::MeasureLinks& request = send->message.measure_links();
        if (request.rank() == 0) {
          EXPECT_EQ(connections_.at(send->connection), request.members(0).name());
          requests_.push_back(request.request());
          announced.push_back(request.members(0).name() + "-" + request.members(1).name());
          rates_[announced.back()] = {request.machine_rates().begin(),
                                      request.machine_rates().end()};
        }
      } else if (const auto* log = std::get_if<WriteLog>(&action)) {
        const auto* result = log->event.Find("result");
        announced.push_back(result == nullptr ? log->event.kind : std::get<std::string>(*result));
      }
    }
    return announced;
  }
  void Answer(const std::string& name, int64_t request, double rate = 1e9) {
    wire::LinksMeasured message;
    message.set_request(request);
    wire::LinksMeasured::Link& link = *message.add_links();
    link.set_transport("tcp");
    link.set_latency_seconds(1e-5);
    link.set_bytes_per_second(rate);
    survey_.TakeAnswer(roster_.at(name), message, roster_, policy_, out_);
    EXPECT_TRUE(survey_.Check(roster_).ok());
  }

  LinkPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  ConnectionId next_ = 1;
  std::map<ConnectionId, std::string> connections_;
  std::vector<int64_t> requests_;
  std::map<std::string, std::vector<double>> rates_;  ///< MeasureLinks::machine_rates, by pair.
  Roster roster_;
  LinkSurvey survey_;
  Outbox out_{[this] {
    DurableState durable;
    survey_.Store(durable);
    return durable;
  }};
};

TEST_F(LinkSurveyTest, WithoutTransportsNothingIsMeasured) {
  policy_.transports.clear();
  Add("a");
  Add("b");
  EXPECT_TRUE(Settled());
  EXPECT_THAT(Notified(), IsEmpty());
}

TEST_F(LinkSurveyTest, ALifeIsDurableBeforeItsFirstRequestAndOnce) {
  Add("a");
  Add("b");
  Add("c");
  EXPECT_FALSE(Settled());
  EXPECT_THAT(Notified(), ElementsAre("durable", "a-b"));
  Answer("a", requests_[0]);
  Answer("b", requests_[0]);
  EXPECT_THAT(Notified(), ElementsAre("ok"));
  EXPECT_FALSE(Settled());
  EXPECT_THAT(Notified(), SizeIs(1));
  EXPECT_GT(requests_[1], requests_[0]);
}

TEST_F(LinkSurveyTest, RequestsOfALaterLifeAreAboveAllOfTheOneBefore) {
  Add("a");
  Add("b");
  DurableState before;
  before.restarts = 2;
  survey_.Restore(before);
  Settled();
  Notified();
  EXPECT_EQ(requests_.at(0) >> 32, 3);
}

TEST_F(LinkSurveyTest, WhatAMachineKeepsIsAskedForUntilItIsDoubted) {
  Add("a", "one", "x");
  Add("b", "one", "x");
  Add("c", "one", "y");
  Add("d", "two", "x");
  Add("e", "one", "x", 512);
  const auto measure_all = [&] {
    rates_.clear();
    for (size_t answered = requests_.size(); !Settled(); answered = requests_.size()) {
      Notified();
      ASSERT_LT(answered, requests_.size());
      for (; answered < requests_.size(); ++answered) {
        for (const char* name : {"a", "b", "c", "d", "e"}) {
          Answer(name, requests_[answered]);
        }
      }
    }
  };
  measure_all();
  EXPECT_THAT(rates_.at("a-b"), ElementsAre(0, 0));
  EXPECT_THAT(rates_.at("a-e"), ElementsAre(0, 512));
  EXPECT_THAT(rates_.at("a-c"), IsEmpty()) << "another network may be another container";
  EXPECT_THAT(rates_.at("a-d"), IsEmpty());
  survey_.MeasureAgain({"a", "b", "e"}, roster_);
  measure_all();
  EXPECT_THAT(rates_.at("a-b"), IsEmpty());
  EXPECT_THAT(rates_.at("a-e"), IsEmpty());
}

TEST_F(LinkSurveyTest, AnAnswerOfOneEndIsNotEnough) {
  Add("a");
  Add("b");
  Settled();
  Notified();
  Answer("a", requests_[0]);
  Answer("a", requests_[0]);
  EXPECT_THAT(Notified(), IsEmpty());
  EXPECT_FALSE(Settled());
  Answer("b", requests_[0], 2e9);
  EXPECT_THAT(Notified(), ElementsAre("ok"));
  EXPECT_TRUE(Settled());
  const wire::Links links = survey_.LinksOf({"b", "a"}, roster_);
  ASSERT_EQ(links.pairs_size(), 1);
  EXPECT_EQ(links.pairs(0).transports(0).bytes_per_second(), 2e9) << "from b, which is asked first";
  EXPECT_EQ(links.pairs(0).transports(0).back_bytes_per_second(), 1e9);
}

TEST_F(LinkSurveyTest, AMeasurementThatIsLateIsNotTriedAgainUntilAWorkerJoinsThere) {
  Add("a");
  Add("b");
  Settled();
  Notified();
  EXPECT_EQ(survey_.NextDeadline(), now_ + policy_.timeout);
  now_ += policy_.timeout - Duration(1);
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_THAT(Notified(), IsEmpty());
  now_ += Duration(1);
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_THAT(Notified(), ElementsAre("timeout"));
  survey_.PlacesChanged();
  EXPECT_TRUE(Settled());
  EXPECT_THAT(Notified(), IsEmpty());
  survey_.WorkerJoined(roster_.at("b"));
  survey_.PlacesChanged();
  EXPECT_FALSE(Settled());
  EXPECT_THAT(Notified(), ElementsAre("a-b"));
}

TEST_F(LinkSurveyTest, APlanWaitsOnceAndNoLongerThanAllowed) {
  policy_.timeout = std::chrono::seconds(60);
  Add("a");
  Add("b");
  EXPECT_FALSE(Settled());
  now_ += policy_.wait - Duration(1);
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_FALSE(Settled());
  now_ += Duration(1);
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_TRUE(Settled());
  EXPECT_THAT(Notified(), testing::Contains("warning"));
  EXPECT_TRUE(Settled());
  EXPECT_EQ(survey_.NextDeadline(), Time(std::chrono::seconds(160))) << "of the measurement alone";
}

TEST_F(LinkSurveyTest, AHostAtItsProfileIsLeftInPeace) {
  Add("a");
  Add("b");
  wire::Hello hello;
  hello.set_name("x");
  hello.set_host("host-a");
  roster_.Join(next_++, hello, now_);
  roster_.Welcome("x", false, Job(), 0, out_);
  roster_.ScheduleProfiles(survey_.BusyHosts(roster_), std::chrono::seconds(60), now_, out_);
  out_.Take();
  Settled();
  EXPECT_THAT(Notified(), IsEmpty());
}

TEST_F(LinkSurveyTest, OneThatGoesEndsItsMeasurementAndFreesTheOther) {
  Add("a");
  Add("b");
  Settled();
  Notified();
  EXPECT_THAT(survey_.BusyHosts(roster_), ElementsAre("host-a", "host-b"));
  survey_.Forget("a", roster_, policy_, out_);
  roster_.Dismiss("a", "lost", true, out_);
  EXPECT_THAT(Notified(), ElementsAre("lost"));
  EXPECT_THAT(survey_.BusyHosts(roster_), IsEmpty());
  EXPECT_TRUE(Settled());
}

}  // namespace
}  // namespace heddle::elastic
