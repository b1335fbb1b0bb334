// Which pairs of places are measured, how many of them, and what is kept, forgotten and told.
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/links/link_survey.h"
#include "elastic/protocol/link_figures.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class LinkPairsTest : public testing::Test {
 protected:
  LinkPairsTest() { policy_.transports = {"tcp"}; }

  void Add(const std::string& name, const std::string& host, const std::string& network = "") {
    wire::Hello hello;
    hello.set_name(name);
    hello.set_incarnation(std::string(16, name.back()));
    hello.set_host(host);
    hello.set_network(network);
    hello.set_probe_address("probe of " + name);
    Join(hello);
  }
  void Join(const wire::Hello& hello) {
    connections_[next_] = hello.name();
    roster_.Join(next_++, hello, now_);
    roster_.Welcome(hello.name(), false, Job(), 0, out_);
    roster_.TakeProfile(hello.name(), "{}");
    survey_.WorkerJoined(roster_.at(hello.name()));
    survey_.PlacesChanged();
  }
  void Remove(const std::string& name) {
    survey_.Forget(name, roster_, policy_, out_);
    roster_.Dismiss(name, "lost", true, out_);
  }
  // Asks for what may begin: "a-b" by rank; the requests by pair, in the order of asking.
  std::vector<std::string> Asked() {
    survey_.Settled(roster_, policy_, now_, out_);
    EXPECT_TRUE(survey_.Check(roster_).ok());
    std::vector<std::string> pairs;
    for (const CoordinatorAction& action : out_.Take()) {
      const auto* send = std::get_if<Send>(&action);
      if (send != nullptr && send->message.has_measure_links()) {
        const wire::MeasureLinks& request = send->message.measure_links();
        EXPECT_EQ(connections_.at(send->connection), request.members(request.rank()).name());
        if (request.rank() == 0) {
          pairs.push_back(request.members(0).name() + "-" + request.members(1).name());
          requests_[pairs.back()] = request.request();
          numbers_.push_back(request.request());
        }
      }
    }
    return pairs;
  }
  void Answer(const std::string& worker, int64_t request, const std::string& error = "") {
    wire::LinksMeasured message;
    message.set_request(request);
    wire::LinksMeasured::Link& link = *message.add_links();
    link.set_transport("tcp");
    link.set_latency_seconds(0.25);
    link.set_bytes_per_second(1024);
    link.set_error(error);
    survey_.TakeAnswer(roster_.at(worker), message, roster_, policy_, out_);
  }
  void AnswerBoth(const std::string& pair, const std::string& error = "") {
    const size_t dash = pair.find('-');
    Answer(pair.substr(0, dash), requests_.at(pair), error);
    Answer(pair.substr(dash + 1), requests_.at(pair), error);
  }
  // Everything that is asked for, answered, until nothing is left.
  std::vector<std::string> MeasureAll(const std::string& error = "") {
    std::vector<std::string> all;
    for (auto pairs = Asked(); !pairs.empty(); pairs = Asked()) {
      for (const std::string& pair : pairs) {
        AnswerBoth(pair, error);
        all.push_back(pair);
      }
    }
    EXPECT_TRUE(survey_.Settled(roster_, policy_, now_, out_));
    return all;
  }
  std::string LastLog(const std::string& field) {
    std::string text;
    for (const CoordinatorAction& action : out_.Take()) {
      if (const auto* log = std::get_if<WriteLog>(&action)) {
        const auto* value = log->event.Find(field);
        text = value == nullptr ? text : std::get<std::string>(*value);
      }
    }
    return text;
  }

  LinkPolicy policy_;
  Time now_{std::chrono::seconds(100)};
  ConnectionId next_ = 1;
  std::map<ConnectionId, std::string> connections_;
  std::map<std::string, int64_t> requests_;
  std::vector<int64_t> numbers_;
  Roster roster_;
  LinkSurvey survey_;
  Outbox out_{[this] {
    DurableState durable;
    survey_.Store(durable);
    return durable;
  }};
};

TEST_F(LinkPairsTest, RequestsLeaveRoomForTheGroupsOfTheirTransports) {
  for (const char* name : {"a", "b", "c"}) {
    Add(name, std::string("host-") + name);
  }
  MeasureAll();
  ASSERT_EQ(numbers_.size(), 3U);
  EXPECT_EQ(numbers_[0], kMaxMeasuredTransports);
  EXPECT_EQ(numbers_[1], 2 * kMaxMeasuredTransports);
  EXPECT_EQ(numbers_[2], 3 * kMaxMeasuredTransports);
}

// Distance one of the ring gives everybody two.
TEST_F(LinkPairsTest, NobodyIsMeasuredWithMorePartnersThanAskedFor) {
  policy_.partners = 2;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    Add(name, name);
  }
  EXPECT_THAT(MeasureAll(), UnorderedElementsAre("a-b", "b-c", "c-d", "d-e", "e-f", "a-f"));
  policy_.partners = 3;
  survey_.PlacesChanged();
  EXPECT_THAT(MeasureAll(), UnorderedElementsAre("a-c", "b-d", "c-e", "d-f"))
      << "of the distance of two, until nobody wants another";
  policy_.partners = 5;
  survey_.PlacesChanged();
  EXPECT_THAT(MeasureAll(), UnorderedElementsAre("a-d", "b-e", "c-f", "a-e", "b-f"));
  policy_.partners = 99;
  survey_.PlacesChanged();
  EXPECT_THAT(MeasureAll(), IsEmpty()) << "all pairs are known";
}

TEST_F(LinkPairsTest, ANewPlaceIsMeasuredWithThoseThatKnowEachOther) {
  policy_.partners = 1;
  Add("a", "a");
  Add("b", "b");
  EXPECT_THAT(MeasureAll(), ElementsAre("a-b"));
  Add("c", "c");
  EXPECT_EQ(MeasureAll().size(), 1U) << "it wants one partner, the others have theirs";
}

TEST_F(LinkPairsTest, WhoCannotBeMeasuredIsNotWaitedFor) {
  Add("a", "a");
  Add("b", "b");
  wire::Hello silent;
  silent.set_name("s");
  silent.set_host("s");
  Join(silent);  // It has no address to be measured at.
  EXPECT_THAT(MeasureAll(), ElementsAre("a-b"));
  Add("c", "c");
  roster_.Drain("c", "drained");
  EXPECT_THAT(MeasureAll(), IsEmpty()) << "no plan will count on it";
}

TEST_F(LinkPairsTest, AWorkerThatIsCutOffIsMeasuredOnceItIsBack) {
  Add("a", "a");
  Add("b", "b");
  roster_.Disconnect(2, now_);
  EXPECT_THAT(Asked(), IsEmpty());
  EXPECT_FALSE(survey_.Settled(roster_, policy_, now_, out_));
  wire::Hello hello;
  hello.set_name("b");
  hello.set_incarnation(std::string(16, 'b'));
  hello.set_host("b");
  hello.set_probe_address("probe of b");
  connections_[next_] = "b";
  roster_.Return(next_++, hello, now_, out_);
  survey_.PlacesChanged();
  EXPECT_THAT(Asked(), ElementsAre("a-b"));
}

TEST_F(LinkPairsTest, OthersOfThePlaceStandInForOneThatIsCutOff) {
  Add("a", "one");
  Add("b", "one");
  Add("c", "two");
  roster_.Disconnect(1, now_);
  EXPECT_THAT(Asked(), ElementsAre("b-c")) << "and the host in itself has to wait";
}

// Places in themselves come first, a host in one measurement at a time.
TEST_F(LinkPairsTest, NetworksOfOneHostAreUnlikePlaces) {
  Add("a", "one", "x");
  Add("b", "one", "y");
  Add("c", "one", "y");
  EXPECT_THAT(MeasureAll(), ElementsAre("b-c", "a-b"));
}

TEST_F(LinkPairsTest, OnlyWhatFailedAtThePlaceOfANewWorkerIsTriedAgain) {
  for (const char* name : {"a", "b", "c"}) {
    Add(name, name);
  }
  MeasureAll("no route");
  survey_.PlacesChanged();
  EXPECT_THAT(MeasureAll(), IsEmpty());
  for (const auto& [second, again] : std::map<std::string, std::set<std::string>>{
           {"a", {"a-b", "a-c"}}, {"b", {"a-b", "b-c"}}, {"c", {"a-c", "b-c"}}}) {
    survey_.WorkerJoined(roster_.at(second));
    survey_.PlacesChanged();
    const auto pairs = MeasureAll("no route");
    EXPECT_EQ(std::set<std::string>(pairs.begin(), pairs.end()), again) << second;
  }
  survey_.WorkerJoined(roster_.at("a"));
  survey_.PlacesChanged();
  MeasureAll();
  survey_.WorkerJoined(roster_.at("a"));
  survey_.PlacesChanged();
  EXPECT_THAT(MeasureAll(), IsEmpty()) << "what went well is kept";
}

// 92 places are 4186 pairs, more than are kept of places that are gone.
TEST_F(LinkPairsTest, PlacesThatAreGoneAreForgottenOnceTheyAreTooMany) {
  policy_.partners = 1000;
  for (int i = 0; i < 92; ++i) {
    Add(fmt::format("w{:02}", i), fmt::format("h{:02}", i));
  }
  EXPECT_EQ(MeasureAll().size(), 92U * 91 / 2);
  Remove("w07");
  EXPECT_THAT(MeasureAll(), IsEmpty());
  Add("w07", "h07");
  EXPECT_EQ(MeasureAll().size(), 91U) << "with all others, which are kept";
}

TEST_F(LinkPairsTest, TheWarningCountsEveryPairThatIsLeftOnce) {
  policy_.timeout = std::chrono::seconds(60);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    Add(name, *name == 'e' ? "d" : name);  // d and e share a place.
  }
  EXPECT_EQ(Asked().size(), 2U) << "the place in itself, and another pair";
  now_ += policy_.wait;
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_EQ(LastLog("message"), "the links of 7 pairs are not measured after 30 s");
}

TEST_F(LinkPairsTest, WhatWasMeasuredWhileNobodyAskedForAPlanIsNotLate) {
  Add("a", "a");
  Add("b", "b");
  Asked();
  AnswerBoth("a-b");
  out_.Take();
  now_ += policy_.wait;
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_EQ(LastLog("message"), "");
  Add("c", "c");
  EXPECT_FALSE(survey_.Settled(roster_, policy_, now_, out_)) << "the wait for this one is whole";
}

TEST_F(LinkPairsTest, AfterItsWaitAPlanWaitsAgainOnlyForWhatComesLater) {
  policy_.timeout = std::chrono::seconds(60);
  Add("a", "a");
  Add("b", "b");
  Asked();
  EXPECT_EQ(survey_.NextDeadline(), now_ + policy_.wait);
  now_ += policy_.wait;
  survey_.CheckDeadlines(roster_, policy_, now_, out_);
  EXPECT_TRUE(survey_.Settled(roster_, policy_, now_, out_));
  AnswerBoth("a-b");
  EXPECT_TRUE(survey_.Settled(roster_, policy_, now_, out_));
  EXPECT_EQ(survey_.NextDeadline(), std::nullopt);
  Add("c", "c");
  EXPECT_FALSE(survey_.Settled(roster_, policy_, now_, out_));
  EXPECT_EQ(survey_.NextDeadline(), now_ + policy_.wait);
}

TEST_F(LinkPairsTest, WhyNothingJoinsTwoIsLoggedInTheWordsOfBothAndCutShort) {
  Add("a", "a");
  Add("b", "b");
  Asked();
  wire::LinksMeasured message;
  message.set_request(requests_.at("a-b"));
  const std::string long_name(40, 'x');
  for (int i = 0; i < 5; ++i) {
    wire::LinksMeasured::Link& link = *message.add_links();
    link.set_transport(long_name);
    link.set_error(std::string(500, 'y'));
  }
  message.mutable_links(1)->clear_error();
  survey_.TakeAnswer(roster_.at("a"), message, roster_, policy_, out_);
  message.clear_links();
  message.set_error("it has no endpoint");
  survey_.TakeAnswer(roster_.at("b"), message, roster_, policy_, out_);
  const std::string refused = std::string(16, 'x') + ": " + std::string(120, 'y');
  const std::string nonsense = std::string(16, 'x') + ": figures that no link has";
  const std::string all = refused + "; " + nonsense + "; " + refused + "; " + refused;
  EXPECT_EQ(LastLog("reason"), "a: " + all.substr(0, 400) + "; b: it has no endpoint");
}

TEST_F(LinkPairsTest, AnAnswerOfAThirdOrToAnotherRequestIsNone) {
  for (const char* name : {"a", "b", "c"}) {
    Add(name, name);
  }
  ASSERT_EQ(Asked(), std::vector<std::string>{"a-b"});
  Answer("c", requests_.at("a-b"));
  Answer("a", requests_.at("a-b"));
  Answer("b", requests_.at("a-b") + 1);
  EXPECT_THAT(Asked(), IsEmpty());
  Answer("b", requests_.at("a-b"));
  EXPECT_EQ(Asked().size(), 1U);
}

TEST_F(LinkPairsTest, LinksAreGivenByPlaceInTheOrderOfTheNames) {
  Add("a", "one");
  Add("b", "one");
  Add("c", "two");
  Add("d", "three");
  MeasureAll();
  Add("e", "four");
  const wire::Links links = survey_.LinksOf({"d", "b", "c", "a", "e"}, roster_);
  EXPECT_THAT(links.places(), ElementsAre(0, 1, 2, 1, 3));
  std::set<std::pair<int, int>> pairs;
  for (const wire::Links::Pair& pair : links.pairs()) {
    pairs.emplace(pair.a(), pair.b());
    EXPECT_EQ(pair.transports_size(), 1);
  }
  EXPECT_EQ(pairs, (std::set<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 1}, {1, 2}}));
  EXPECT_EQ(links.pairs_size(), 4);
  EXPECT_EQ(survey_.LinksOf({"d", "c"}, roster_).pairs_size(), 1) << "others are left out";
}

TEST_F(LinkPairsTest, OnlyWhoTakesPartIsAskedAgain) {
  for (const char* name : {"a", "b", "c"}) {
    Add(name, name);
  }
  Asked();
  for (const auto& [name, rank] : {std::pair("a", 0), std::pair("b", 1), std::pair("c", -1)}) {
    survey_.Resend(roster_.at(name), roster_, policy_, out_);
    const auto actions = out_.Take();
    ASSERT_EQ(actions.size(), rank < 0 ? 0U : 1U) << name;
    if (rank >= 0) {
      const auto& request = std::get<Send>(actions[0]).message.measure_links();
      EXPECT_EQ(request.rank(), rank);
      EXPECT_EQ(request.request(), requests_.at("a-b"));
    }
  }
}

TEST_F(LinkPairsTest, OneThatIsGoneWithoutBeingForgottenIsABrokenInvariant) {
  Add("a", "a");
  Add("b", "b");
  Asked();
  roster_.Dismiss("b", "lost", true, out_);
  EXPECT_THAT(survey_.Check(roster_).ToString(), HasSubstr("links of b"));
}

TEST_F(LinkPairsTest, ATransportJoinsTwoOnlyWhereBothEndsHaveFigures) {
  for (const bool first : {true, false}) {
    roster_ = Roster();
    survey_ = LinkSurvey();
    Add("a", "a");
    Add("b", "b");
    ASSERT_EQ(Asked().size(), 1U);
    Answer("a", requests_.at("a-b"), first ? "no route" : "");
    Answer("b", requests_.at("a-b"), first ? "" : "no route");
    EXPECT_EQ(LastLog("result"), "failed");
    EXPECT_EQ(survey_.LinksOf({"a", "b"}, roster_).pairs_size(), 0);
  }
}

TEST_F(LinkPairsTest, AHostInTwoMeasurementsIsABrokenInvariant) {
  for (const char* name : {"a", "b", "c", "d"}) {
    Add(name, name);
  }
  ASSERT_EQ(Asked().size(), 2U);
  wire::Hello hello;
  hello.set_name("d");
  hello.set_incarnation(std::string(16, 'd'));
  hello.set_host("a");  // It says that it has moved.
  roster_.Return(9, hello, now_, out_);
  EXPECT_THAT(survey_.Check(roster_).ToString(), HasSubstr("host a is in two measurements"));
}

}  // namespace
}  // namespace heddle::elastic
