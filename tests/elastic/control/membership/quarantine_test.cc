// Who comes and is lost again and again is held off.
#include "elastic/control/membership/quarantine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/control/coordinator_fixture.h"

namespace heddle::elastic {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class QuarantineTest : public testing::Test {
 protected:
  // It comes, and is lost after so long; for how long it is held off.
  int64_t Live(Duration time, const std::string& name = "a") {
    quarantine_.Join(name, now_);
    now_ += time;
    const auto sentence = quarantine_.Lose(name, policy_, now_);
    return sentence ? std::chrono::duration_cast<seconds>(sentence->pause).count() : 0;
  }

  QuarantinePolicy policy_;
  Quarantine quarantine_;
  Time now_{seconds(1000)};
};

TEST_F(QuarantineTest, FromTheSecondShortLifeOnThePauseDoubles) {
  EXPECT_EQ(Live(seconds(1)), 0) << "once is an accident";
  EXPECT_FALSE(quarantine_.Find("a", now_));
  for (const int64_t pause : {9, 18, 36, 72, 144, 288, 300, 300}) {
    EXPECT_EQ(Live(seconds(1)), pause);
    EXPECT_EQ(quarantine_.CountAt(now_), 1);
    now_ += seconds(pause) - Duration(1);
    ASSERT_TRUE(quarantine_.Find("a", now_));
    EXPECT_EQ(quarantine_.Find("a", now_)->pause, Duration(1));
    now_ += Duration(1);
    EXPECT_FALSE(quarantine_.Find("a", now_)) << "it may come";
    EXPECT_EQ(quarantine_.CountAt(now_), 0);
  }
}

TEST_F(QuarantineTest, ALongLifeBeginsAnew) {
  Live(seconds(1));
  EXPECT_EQ(Live(seconds(1)), 9);
  EXPECT_EQ(Live(seconds(30)), 0);
  EXPECT_EQ(Live(seconds(1)), 0) << "an accident again";
  EXPECT_EQ(Live(seconds(30) - Duration(1)), 9);
}

TEST_F(QuarantineTest, WhoLeavesAsItWasAskedToIsForgotten) {
  Live(seconds(1));
  quarantine_.Join("a", now_);
  quarantine_.Leave("a");
  EXPECT_EQ(Live(seconds(1)), 0);
}

TEST_F(QuarantineTest, EachIsCountedByItself) {
  Live(seconds(1));
  EXPECT_EQ(Live(seconds(1), "b"), 0);
  EXPECT_EQ(Live(seconds(1)), 9);
  EXPECT_FALSE(quarantine_.Find("b", now_));
  EXPECT_FALSE(quarantine_.Lose("c", policy_, now_)) << "it never came";
  EXPECT_FALSE(quarantine_.Lose("a", policy_, now_)) << "it is lost already";
  EXPECT_EQ(quarantine_.Find("a", now_)->short_lives, 2);
}

TEST_F(QuarantineTest, NobodyIsRememberedForEver) {
  for (int i = 0; i < 3; ++i) {
    Live(seconds(1));
  }
  now_ += seconds(18 + 29);
  Live(seconds(0), "b");
  EXPECT_EQ(Live(seconds(1)), 36) << "it is known still";
  now_ += seconds(36 + 30);
  Live(seconds(0), "b");
  EXPECT_EQ(Live(seconds(1)), 0);
}

// ---- The coordinator ----

class CoordinatorQuarantineTest : public CoordinatorTest {
 protected:
  void ComeAgain(const std::string& name) {
    incarnation_ += 1;
    sent_[name].clear();
    Hello(name,
          [&](wire::Hello& hello) { hello.set_incarnation(fmt::format("{:016}", incarnation_)); });
  }
  void ComeAndDie(const std::string& name) {
    ComeAgain(name);
    ASSERT_NE(Last(name, wire::ToWorker::kWelcome), nullptr);
    now_ += std::chrono::milliseconds(100);
    Tell(ProcessExited{name, 0, "killed by SIGKILL"});
  }

  int incarnation_ = 0;
};

TEST_F(CoordinatorQuarantineTest, WhoDiesTwiceAtOnceIsRefusedUntilItsTimeIsOver) {
  Form();
  ComeAndDie("c");
  EXPECT_EQ(Count("worker_quarantined"), 0);
  ComeAndDie("c");
  ASSERT_EQ(Count("worker_quarantined"), 1);
  EXPECT_EQ(std::get<double>(*Logged("worker_quarantined").Find("seconds")), 9);
  EXPECT_EQ(std::get<int64_t>(*Logged("worker_quarantined").Find("short_lives")), 2);
  Wait(4, {"a", "b"});
  ComeAgain("c");
  const wire::ToWorker* refused = Last("c", wire::ToWorker::kRefused);
  ASSERT_NE(refused, nullptr);
  EXPECT_NEAR(refused->refused().seconds(), 5, 0.2);
  EXPECT_FALSE(refused->refused().permanent());
  EXPECT_FALSE(refused->refused().rejoins());
  EXPECT_THAT(refused->refused().reason(), HasSubstr("lost 2 times shortly after it came"));
  Wait(5.1, {"a", "b"});
  ComeAgain("c");
  EXPECT_NE(Last("c", wire::ToWorker::kWelcome), nullptr);
}

TEST_F(CoordinatorQuarantineTest, WhoIsNeededIsTakenAllTheSame) {
  job_.policy.min_workers = 2;
  Form();
  ComeAndDie("c");
  ComeAndDie("c");
  ASSERT_EQ(Count("worker_quarantined"), 1);
  Tell(ProcessExited{"b", 0, "killed by SIGKILL"});
  ComeAgain("c");
  EXPECT_NE(Last("c", wire::ToWorker::kWelcome), nullptr);
}

TEST_F(CoordinatorQuarantineTest, WhoIsDrainedAndComesAgainIsWelcome) {
  Form();
  for (int i = 0; i < 3; ++i) {
    ComeAgain("c");
    EXPECT_NE(Last("c", wire::ToWorker::kWelcome), nullptr) << i;
    Tell(DrainRequested{"c"});
    Wait(0.2, {"a", "b", "c"});
    EXPECT_NE(Last("c", wire::ToWorker::kRelease), nullptr) << i;
  }
  EXPECT_EQ(Count("worker_quarantined"), 0);
}

}  // namespace
}  // namespace heddle::elastic
