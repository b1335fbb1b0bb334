// Links by pair: who is measured with whom and when, what is announced of it, and that nothing
// which goes wrong with it stops a job.
#include <limits>
#include <set>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class CoordinatorLinksTest : public CoordinatorTest {
 protected:
  CoordinatorLinksTest() { job_.policy.links.transports = {"shm", "tcp"}; }

  void JoinAt(const std::string& name, const std::string& host) {
    Hello(name, [&](wire::Hello& hello) {
      hello.set_host(host);
      hello.set_network("net-" + host);
      hello.set_probe_address("probe of " + name);
    });
    From(name,
         [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  }
  const wire::MeasureLinks* Asked(const std::string& name) {
    const wire::ToWorker* message = Last(name, wire::ToWorker::kMeasureLinks);
    return message == nullptr ? nullptr : &message->measure_links();
  }
  // Who is asked to be measured with whom, since the last look; taken out.
  std::vector<std::pair<std::string, std::string>> TakeAsked() {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (auto& [name, messages] : sent_) {
      for (const wire::ToWorker& message : messages) {
        if (message.has_measure_links() && message.measure_links().rank() == 0) {
          pairs.emplace_back(name, message.measure_links().members(1).name());
          requests_[pairs.back()] = message.measure_links().request();
        }
      }
      std::erase_if(messages, [](const auto& message) { return message.has_measure_links(); });
    }
    return pairs;
  }
  void Answer(const std::string& name,
              int64_t request,
              double latency = 1e-5,
              double rate = 1e9,
              const std::string& error = "") {
    From(name, [&](wire::FromWorker& message) {
      wire::LinksMeasured& measured = *message.mutable_links_measured();
      measured.set_request(request);
      wire::LinksMeasured::Link& shm = *measured.add_links();
      shm.set_transport("shm");
      shm.set_error("no transport leads there");
      wire::LinksMeasured::Link& tcp = *measured.add_links();
      tcp.set_transport("tcp");
      tcp.set_latency_seconds(latency);
      tcp.set_bytes_per_second(rate);
      tcp.set_error(error);
    });
  }
  std::vector<std::string> Results() const {
    std::vector<std::string> results;
    for (const LogEvent& event : log_) {
      if (event.kind == "links_measured") {
        results.push_back(std::get<std::string>(*event.Find("result")));
      }
    }
    return results;
  }

  std::map<std::pair<std::string, std::string>, int64_t> requests_;
};

TEST_F(CoordinatorLinksTest, ThePlanWaitsForThemAndEverybodyIsNotified) {
  Tell(Submitted{job_});
  JoinAt("b", "one");
  JoinAt("a", "two");  // Its place comes second: links are announced by rank all the same.
  ASSERT_NE(Asked("b"), nullptr);
  EXPECT_FALSE(request_.has_value());
  const wire::MeasureLinks asked = *Asked("b");
  EXPECT_EQ(asked.rank(), 0);
  EXPECT_EQ(Asked("a")->rank(), 1);
  EXPECT_EQ(Asked("a")->request(), asked.request());
  EXPECT_EQ(asked.members(0).address(), "probe of b");
  EXPECT_EQ(asked.members(1).address(), "probe of a");
  EXPECT_THAT(asked.transports(), ElementsAre("shm", "tcp"));
  EXPECT_LT(asked.seconds(), Seconds(job_.policy.links.timeout));
  Answer("b", asked.request(), 2e-5, 5e8);
  EXPECT_FALSE(request_.has_value());
  Answer("a", asked.request(), 3e-5, 7e8);
  ASSERT_TRUE(request_.has_value());
  EXPECT_THAT(request_->links.places(), ElementsAre(0, 1));
  ASSERT_EQ(request_->links.pairs_size(), 1);
  const wire::Links::Pair& pair = request_->links.pairs(0);
  EXPECT_EQ(pair.a(), 0);
  EXPECT_EQ(pair.b(), 1);
  ASSERT_EQ(pair.transports_size(), 1);  // What one end could not use does not join them.
  EXPECT_EQ(pair.transports(0).name(), "tcp");
  EXPECT_EQ(pair.transports(0).bytes_per_second(), 7e8);  // From a, the candidate of place 0 …
  EXPECT_EQ(pair.transports(0).back_bytes_per_second(), 5e8);
  EXPECT_EQ(pair.transports(0).latency_seconds(), 3e-5);
  const std::string announced = request_->links.ShortDebugString();
  AnswerPlan();
  for (const char* name : {"a", "b"}) {
    ASSERT_NE(Last(name, wire::ToWorker::kPrepare), nullptr);
    EXPECT_EQ(Last(name, wire::ToWorker::kPrepare)->prepare().links().ShortDebugString(),
              announced);
  }
  EXPECT_THAT(Results(), ElementsAre("ok"));
}

TEST_F(CoordinatorLinksTest, APairOfHostsIsMeasuredOnceAndAHostInItself) {
  job_.policy.initial_workers = 4;
  Tell(Submitted{job_});
  for (const char* name : {"a", "b"}) {
    JoinAt(name, "one");
  }
  for (const char* name : {"c", "d"}) {
    JoinAt(name, "two");
  }
  EXPECT_THAT(TakeAsked(), UnorderedElementsAre(std::pair("a", "b"), std::pair("c", "d")));
  Answer("a", requests_[{"a", "b"}]);
  Answer("b", requests_[{"a", "b"}]);
  EXPECT_THAT(TakeAsked(), testing::IsEmpty());  // The other host is still busy.
  Answer("c", requests_[{"c", "d"}]);
  Answer("d", requests_[{"c", "d"}]);
  EXPECT_THAT(TakeAsked(), ElementsAre(std::pair("a", "c")));
  Answer("a", requests_[{"a", "c"}]);
  Answer("c", requests_[{"a", "c"}]);
  ASSERT_TRUE(request_.has_value());
  EXPECT_THAT(request_->links.places(), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(request_->links.pairs_size(), 3);
}

TEST_F(CoordinatorLinksTest, UnlikeEmulatedLinksOfOneHostAreUnlikePlaces) {
  job_.emulation["b"].set_link_bytes_per_second(1e6);
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "one");
  EXPECT_THAT(TakeAsked(), ElementsAre(std::pair("a", "b")));
  Answer("a", requests_[{"a", "b"}]);
  Answer("b", requests_[{"a", "b"}]);
  EXPECT_THAT(request_->links.places(), ElementsAre(0, 1));
}

TEST_F(CoordinatorLinksTest, ManyHostsAreMeasuredInDisjointPairsUpToABound) {
  constexpr int kHosts = 60;
  job_.policy.initial_workers = kHosts;
  job_.policy.links.partners = 6;
  Tell(Submitted{job_});
  for (int i = 0; i < kHosts; ++i) {
    JoinAt(fmt::format("w{:02}", i), fmt::format("host-{:02}", i));
  }
  std::map<std::string, int> partners;
  int rounds = 0;
  int measured = 0;
  for (auto pairs = TakeAsked(); !pairs.empty(); pairs = TakeAsked()) {
    std::set<std::string> busy;
    for (const auto& [a, b] : pairs) {
      EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << a << " " << b;
      ++partners[a];
      ++partners[b];
    }
    // All of a round, then the next; the invariants see to it that none overlaps in between.
    for (const auto& pair : pairs) {
      Answer(pair.first, requests_[pair]);
      Answer(pair.second, requests_[pair]);
    }
    measured += static_cast<int>(pairs.size());
    ++rounds;
  }
  EXPECT_TRUE(request_.has_value());
  EXPECT_EQ(partners.size(), static_cast<size_t>(kHosts));
  for (const auto& [name, count] : partners) {
    EXPECT_GE(count, 6) << name;
  }
  EXPECT_LE(measured, kHosts * 6);
  EXPECT_LE(rounds, 2 * 6 + 2);
}

TEST_F(CoordinatorLinksTest, FailuresAndSilenceLeaveTheEndsOwnNumbers) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "two");
  JoinAt("c", "three");
  const double infinity = std::numeric_limits<double>::infinity();
  ASSERT_EQ(TakeAsked().size(), 1u);  // Hosts in order: one, three, two.
  const auto [first, request] = *requests_.begin();
  Answer(first.first, request);
  Answer(first.second, request, 1e-5, infinity);  // Figures that are none.
  EXPECT_THAT(Results(), ElementsAre("failed"));
  ASSERT_EQ(TakeAsked().size(), 1u);
  Wait(5.2, {"a", "b", "c"});  // Nobody answers.
  EXPECT_THAT(Results(), ElementsAre("failed", "timeout"));
  const auto pairs = TakeAsked();
  ASSERT_EQ(pairs.size(), 1u);
  Answer(pairs[0].first, requests_[pairs[0]], 1e-5, 1e9, "no memory may be locked");
  Answer(pairs[0].second, requests_[pairs[0]], 1e-5, 1e9, "the peer closed the connection");
  EXPECT_THAT(Results(), ElementsAre("failed", "timeout", "failed"));
  const auto reason = std::get<std::string>(*log_.back().Find("reason"));
  EXPECT_THAT(reason, HasSubstr(pairs[0].first + ": "));
  EXPECT_THAT(reason, HasSubstr("no memory may be locked"));
  EXPECT_THAT(reason, HasSubstr(pairs[0].second + ": "));
  EXPECT_THAT(reason, HasSubstr("closed"));
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->links.pairs_size(), 0);
  EXPECT_EQ(request_->links.places_size(), 3);
}

TEST_F(CoordinatorLinksTest, FiguresThatNoLinkHasAreNone) {
  const std::pair<double, double> none[] = {{0, 1e9}, {3601, 1e9}, {1e-5, 0.5}, {1e-5, 2e15}};
  job_.policy.initial_workers = 5;
  Tell(Submitted{job_});
  JoinAt("a", "host-a");
  for (const auto& [latency, rate] : none) {
    const std::string other(1, static_cast<char>('b' + (&latency - &none[0].first) / 2));
    JoinAt(other, "host-" + other);
    while (true) {
      const auto pairs = TakeAsked();
      if (pairs.empty()) {
        break;
      }
      for (const auto& pair : pairs) {
        Answer(pair.first, requests_[pair]);
        Answer(pair.second, requests_[pair], latency, rate);
        EXPECT_EQ(Results().back(), "failed") << latency << " s, " << rate;
      }
    }
  }
  EXPECT_GE(Results().size(), 4u);
}

TEST_F(CoordinatorLinksTest, APlaceOfAnyLengthIsRefused) {
  Tell(Submitted{job_});
  Hello("a", [](wire::Hello& hello) { hello.set_host(std::string(256, 'h')); });
  EXPECT_NE(Last("a", wire::ToWorker::kRefused), nullptr);
  Hello("b", [](wire::Hello& hello) { hello.set_network(std::string(256, 'n')); });
  EXPECT_NE(Last("b", wire::ToWorker::kRefused), nullptr);
  JoinAt("c", std::string(200, 'h'));
  EXPECT_EQ(Last("c", wire::ToWorker::kRefused), nullptr);
}

TEST_F(CoordinatorLinksTest, StaleAnswersChangeNothing) {
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "two");
  TakeAsked();
  const int64_t request = requests_[{"a", "b"}];
  Wait(5.2, {"a", "b"});
  EXPECT_THAT(Results(), ElementsAre("timeout"));
  ASSERT_TRUE(request_.has_value());
  Answer("a", request);
  Answer("b", request);
  Answer("b", request + 8);
  EXPECT_THAT(Results(), ElementsAre("timeout"));
  AnswerPlan();
  EXPECT_EQ(Last("a", wire::ToWorker::kPrepare)->prepare().links().pairs_size(), 0);
}

TEST_F(CoordinatorLinksTest, AWorkerLostInTheMiddleIsReplacedOrLeftOut) {
  job_.policy.initial_workers = 3;
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "one");
  JoinAt("c", "two");
  ASSERT_THAT(TakeAsked(), ElementsAre(std::pair("a", "b")));
  Answer("a", requests_[{"a", "b"}]);
  Answer("b", requests_[{"a", "b"}]);
  ASSERT_THAT(TakeAsked(), ElementsAre(std::pair("a", "c")));
  Tell(ProcessExited{"a", 0, "killed by SIGKILL"});
  EXPECT_THAT(Results(), ElementsAre("ok", "lost"));
  JoinAt("d", "two");  // Takes its place in the job; b stands for its host now.
  ASSERT_THAT(TakeAsked(), ElementsAre(std::pair("c", "d")));
  Answer("c", requests_[{"c", "d"}]);
  Answer("d", requests_[{"c", "d"}]);
  ASSERT_THAT(TakeAsked(), ElementsAre(std::pair("b", "c")));
  Answer("b", requests_[{"b", "c"}]);
  Answer("c", requests_[{"b", "c"}]);
  EXPECT_TRUE(request_.has_value());
}

TEST_F(CoordinatorLinksTest, WhatIsKnownIsKeptAndANewHostIsMeasuredWhileOthersTrain) {
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "two");
  TakeAsked();
  Answer("a", requests_[{"a", "b"}]);
  Answer("b", requests_[{"a", "b"}]);
  AnswerPlan();
  AnswerPrepared(1);
  AnswerReady({"a", "b"}, 1);
  EXPECT_EQ(coordinator_.StatusAt(now_).phase(), "training");

  JoinAt("c", "three");
  EXPECT_FALSE(request_.has_value());
  for (int i = 0; i < 2; ++i) {
    const auto pairs = TakeAsked();
    ASSERT_EQ(pairs.size(), 1u);  // Its host is in one measurement at a time.
    EXPECT_TRUE(pairs[0].first == "c" || pairs[0].second == "c");
    Answer(pairs[0].first, requests_[pairs[0]]);
    Answer(pairs[0].second, requests_[pairs[0]]);
  }
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->links.pairs_size(), 3);
  AnswerPlan();
  AnswerPrepared(3);

  // One dies and comes back at the same address: nothing is measured anew.
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  Halted("a", 4, 1, 1, false);
  Halted("c", 4, 0, 0, false);
  Wait(0.3, {"a", "c"});
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->links.pairs_size(), 1);
  AnswerPlan();
  AnswerPrepared(5);
  AnswerReady(members_, 5);
  Hello("b", [](wire::Hello& hello) {
    hello.set_incarnation(std::string(16, 'B'));
    hello.set_host("two");
    hello.set_network("net-two");
    hello.set_probe_address("another probe of b");
  });
  From("b", [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
  EXPECT_THAT(TakeAsked(), testing::IsEmpty());
  ASSERT_TRUE(request_.has_value());
  EXPECT_EQ(request_->links.pairs_size(), 3);
}

TEST_F(CoordinatorLinksTest, APlanWaitsNoLongerThanAllowed) {
  job_.policy.initial_workers = 6;
  job_.policy.links.timeout = std::chrono::seconds(2);
  job_.policy.links.wait = std::chrono::seconds(3);
  Tell(Submitted{job_});
  std::vector<std::string> names;
  for (int i = 0; i < 6; ++i) {
    names.push_back(fmt::format("w{}", i));
    JoinAt(names.back(), fmt::format("host-{}", i));
  }
  Wait(2.9, names);
  EXPECT_FALSE(request_.has_value());
  Wait(0.2, names);
  EXPECT_TRUE(request_.has_value());
  EXPECT_EQ(Count("warning"), 1);
}

TEST_F(CoordinatorLinksTest, AWorkerThatComesBackIsAskedAgain) {
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "two");
  TakeAsked();
  Tell(Disconnected{connections_.at("b")});
  Hello("b", [](wire::Hello& hello) {
    hello.set_host("two");
    hello.set_network("net-two");
    hello.set_probe_address("probe of b");
  });
  ASSERT_NE(Asked("b"), nullptr);
  EXPECT_EQ(Asked("b")->request(), (requests_[{"a", "b"}]));
  EXPECT_EQ(Asked("b")->rank(), 1);
}

// Its workers fence requests below those that they have seen.
TEST_F(CoordinatorLinksTest, ARestartedCoordinatorNumbersAboveItsPredecessor) {
  Tell(Submitted{job_});
  JoinAt("a", "one");
  JoinAt("b", "two");
  TakeAsked();
  const int64_t before = requests_[{"a", "b"}];
  for (int restarts = 1; restarts <= 2; ++restarts) {
    coordinator_ = Coordinator(stored_, job_, now_);
    connections_.clear();
    for (const char* name : {"a", "b"}) {
      Hello(name, [&](wire::Hello& hello) {
        hello.set_host(*name == 'a' ? "one" : "two");
        hello.set_probe_address("probe");
      });
      From(name,
           [](wire::FromWorker& message) { message.mutable_profiled()->set_profile_json("{}"); });
    }
    ASSERT_EQ(TakeAsked().size(), 1u);
    EXPECT_GT((requests_[{"a", "b"}]), before + restarts * (int64_t{1} << 31));
    EXPECT_EQ(stored_.restarts, restarts);
  }
}

}  // namespace
}  // namespace heddle::elastic
