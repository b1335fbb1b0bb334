// What waits for an operation: its one end, deadlines, nudges, and who may do the work meanwhile.
#include "comm/message/work.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::comm {
namespace {

constexpr Duration kLong = std::chrono::minutes(10);

/// Writes down what its waits do.
struct Noted final : Work::State {
  explicit Noted(Duration timeout = kLong) : State(timeout) {}
  void Cancel(const Status& status) override {
    notes.push_back("cancel " + status.message());
    Complete(status);
  }
  void Drive(Deadline deadline, Patience patience) override {
    notes.push_back(patience == Patience::kSpin ? "drive" : "drive patiently");
    driven_until = deadline;
    if (ends_by_drive) {
      Complete(Status::Ok());
    }
  }
  void SetAsleep(bool asleep) override { notes.push_back(asleep ? "asleep" : "awake"); }
  std::string Describe() const override { return "waiting for worker-3"; }

  std::vector<std::string> notes;
  Deadline driven_until;
  bool ends_by_drive = false;
};

using Notes = std::vector<std::string>;

TEST(WorkTest, AnEmptyWorkIsDone) {
  const Work none;
  EXPECT_TRUE(none.Done());
  EXPECT_TRUE(none.Wait().ok());
  EXPECT_TRUE(none.Wait(Now()).ok());
  EXPECT_EQ(none.finished_at(), Time());
}

TEST(WorkTest, TheFirstEndCounts) {
  const auto state = std::make_shared<Noted>();
  const Work work(state);
  EXPECT_FALSE(work.Done());
  const Time before = Now();
  state->Complete(UnavailableError("first"));
  const Time after = Now();
  state->Complete(AbortedError("second"));
  EXPECT_TRUE(work.Done());
  EXPECT_EQ(work.Wait(After(kLong)).message(), "first");
  EXPECT_GE(work.finished_at(), before);
  EXPECT_LE(work.finished_at(), after);
  EXPECT_TRUE(state->notes.empty()) << "nobody had to wait for it";
}

TEST(WorkTest, AWaitDrivesFirstAndThenSleeps) {
  const auto state = std::make_shared<Noted>();
  state->ends_by_drive = true;
  const Deadline deadline = After(kLong);
  EXPECT_TRUE(Work(state).Wait(deadline, Patience::kSleep).ok());
  EXPECT_EQ(state->notes, Notes{"drive patiently"});
  EXPECT_EQ(state->driven_until, deadline);
  const auto other = std::make_shared<Noted>();
  std::thread ender([&] { other->Complete(AbortedError("ended elsewhere")); });
  EXPECT_EQ(Work(other).Wait(deadline).message(), "ended elsewhere");
  ender.join();
  const auto slept = std::make_shared<Noted>();
  EXPECT_FALSE(slept->WaitUntil(Now()));
  EXPECT_EQ(slept->notes, (Notes{"drive", "asleep", "awake"}));
  EXPECT_FALSE(slept->Done()) << "it changes nothing";
}

TEST(WorkTest, ADeadlineEndsItAndSaysWhatFor) {
  const auto state = std::make_shared<Noted>();
  const Status status = Work(state).Wait(Now());
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "deadline passed while waiting for worker-3");
  EXPECT_EQ(state->notes, (Notes{"drive", "asleep", "awake",
                                 "cancel deadline passed while waiting for worker-3"}));
  const auto bounded = std::make_shared<Noted>(Duration(0));
  EXPECT_EQ(Work(bounded).Wait().code(), StatusCode::kDeadlineExceeded) << "its own timeout";
  EXPECT_EQ(bounded->timeout(), Duration(0));
}

TEST(WorkTest, ANudgeEndsTheWaitOfThisMomentOrElseTheNext) {
  const auto state = std::make_shared<Noted>();
  state->Nudge();
  const Time began = Now();
  EXPECT_FALSE(state->WaitNudged(After(kLong), began));
  EXPECT_LT(Now() - began, kLong) << "nudged before";
  EXPECT_EQ(state->notes, (Notes{"asleep", "awake"})) << "it does no work itself any more";
  EXPECT_FALSE(state->WaitNudged(Now(), After(kLong))) << "that nudge is over";
  std::atomic<bool> over = false;
  std::thread nudger([&] {
    while (!over.load()) {
      state->Nudge();
      std::this_thread::yield();
    }
  });
  EXPECT_FALSE(state->WaitNudged(After(kLong), Now()));
  over.store(true);
  nudger.join();
  EXPECT_LT(Now() - began, kLong);
}

TEST(WorkTest, ANudgeEndsNoWaitBeforeItsTime) {
  const auto state = std::make_shared<Noted>();
  state->Nudge();
  const Time from = After(std::chrono::milliseconds(20));
  EXPECT_FALSE(state->WaitNudged(After(kLong), from));
  EXPECT_GE(Now(), from);
  state->Nudge();
  const Time until = After(std::chrono::milliseconds(5));
  EXPECT_FALSE(state->WaitNudged(until, After(kLong))) << "the time of the wait comes first";
  EXPECT_GE(Now(), until);
}

TEST(WorkTest, AnEndWakesWhoWaitsNudgedOrNot) {
  for (const bool nudged : {false, true}) {
    const auto state = std::make_shared<Noted>();
    std::thread ender([&] { state->Complete(Status::Ok()); });
    EXPECT_TRUE(nudged ? state->WaitNudged(After(kLong), After(kLong))
                       : state->WaitUntil(After(kLong)));
    ender.join();
  }
}

}  // namespace
}  // namespace heddle::comm
