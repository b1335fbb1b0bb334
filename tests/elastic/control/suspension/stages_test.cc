// All workers stop after one step, save at rest, and the outcome is known in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/control/suspension/suspension.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SuspensionTest : public testing::Test {
 protected:
  SuspensionTest() {
    DurableGeneration held{.number = 3, .plan = {}, .members = {}};
    for (const std::string name : {"a", "b"}) {
      wire::Hello hello;
      hello.set_name(name);
      hello.set_incarnation(std::string(16, name.back()));
      roster_.Join(static_cast<ConnectionId>(name.back()), hello, now_);
      held.plan.members.push_back(name);
      held.plan.parameters.push_back({0});
      held.members[name] = hello.incarnation();
    }
    generations_.Begin(held);
  }
  void Begin() {
    suspension_.Begin(roster_, generations_, std::chrono::seconds(10), now_, out_);
    EXPECT_TRUE(suspension_.Check(generations_).ok());
  }
  bool Stopped(const std::string& worker, int64_t step, int64_t generation = 3) {
    return suspension_.TakeStopped(worker, generation, step, roster_, generations_, out_);
  }
  void Part(const std::string& worker, int64_t step, const std::string& error = "") {
    wire::CheckpointPart part;
    part.set_step(step);
    part.set_generation(3);
    part.set_error(error);
    saves_.TakePart(worker, part, generations_, {}, out_);
  }
  void Committed(int64_t step, const Status& status = Status::Ok()) {
    CheckpointCommitted event;
    event.step = step;
    event.generation = 3;
    event.status = status;
    saves_.TakeCommit(event, out_);
  }
  // "none" while it goes on; else why the state was not saved.
  std::string Outcome() {
    const auto outcome = suspension_.Look(generations_, saves_, now_);
    return outcome ? outcome->failure : "none";
  }
  // What workers were told since the last look: "a stop", "b save 7".
  std::vector<std::string> Heard() {
    std::vector<std::string> heard;
    for (const CoordinatorAction& action : out_.Take()) {
      if (const auto* send = std::get_if<Send>(&action)) {
        const std::string to(1, static_cast<char>(send->connection));
        heard.push_back(send->message.has_save()
                            ? to + " save " + std::to_string(send->message.save().step())
                            : to + (send->message.has_stop() ? " stop" : " ?"));
      }
    }
    return heard;
  }

  Time now_{std::chrono::seconds(100)};
  Roster roster_;
  Generations generations_{3};
  Saves saves_;
  Outbox out_{[] { return DurableState(); }};
  Suspension suspension_;
};

TEST_F(SuspensionTest, TheNoticeCountsFromTheMomentThatAllLeave) {
  const Duration second = std::chrono::seconds(1);
  const Time announced = now_;
  suspension_.NoteLeaving(true, 10 * second, now_);
  EXPECT_EQ(suspension_.NextDeadline(), announced + 10 * second);
  now_ += 4 * second;
  suspension_.NoteLeaving(true, 10 * second, now_);
  Begin();
  EXPECT_EQ(suspension_.NextDeadline(), announced + 10 * second);
  now_ = announced + 10 * second - Duration(1);
  EXPECT_EQ(Outcome(), "none");
  EXPECT_FALSE(suspension_.IsLate(now_));
  now_ = announced + 10 * second;
  EXPECT_THAT(Outcome(), HasSubstr("in time"));
  EXPECT_TRUE(suspension_.IsLate(now_));
}

TEST_F(SuspensionTest, WhereSomebodyStaysThereIsNoEnd) {
  const Duration second = std::chrono::seconds(1);
  suspension_.NoteLeaving(true, 10 * second, now_);
  suspension_.NoteLeaving(false, 10 * second, now_);
  EXPECT_EQ(suspension_.NextDeadline(), std::nullopt);
  now_ += 20 * second;
  EXPECT_FALSE(suspension_.IsLate(now_));
  suspension_.NoteLeaving(true, 10 * second, now_);
  EXPECT_FALSE(suspension_.IsLate(now_)) << "the next notice has its whole time";
}

TEST_F(SuspensionTest, AllStopThenAllSaveThenItIsOver) {
  EXPECT_FALSE(suspension_.IsActive());
  EXPECT_EQ(Outcome(), "none");
  Begin();
  EXPECT_TRUE(suspension_.IsStopping());
  EXPECT_THAT(Heard(), ElementsAre("a stop", "b stop"));
  EXPECT_TRUE(Stopped("a", 7));
  EXPECT_TRUE(Stopped("a", 7)) << "it may say so twice";
  EXPECT_TRUE(Stopped("b", 9, 2)) << "of another generation";
  EXPECT_THAT(Heard(), IsEmpty());
  EXPECT_TRUE(Stopped("b", 7));
  EXPECT_THAT(Heard(), ElementsAre("a save 7", "b save 7"));
  EXPECT_TRUE(suspension_.IsActive());
  EXPECT_FALSE(suspension_.IsStopping());
  Part("a", 7);
  Part("b", 7);
  EXPECT_EQ(Outcome(), "none") << "it is not on storage yet";
  Committed(7);
  EXPECT_EQ(Outcome(), "");
  suspension_.End(7);
  EXPECT_FALSE(suspension_.IsActive());
  EXPECT_EQ(suspension_.after(), 7);
  EXPECT_EQ(Outcome(), "none");
}

TEST_F(SuspensionTest, ASaveOfThatStepThatBeganByItselfWillDo) {
  Begin();
  Part("a", 7);
  Part("b", 7);
  Committed(7);
  EXPECT_EQ(Outcome(), "none") << "nobody knows yet that they stop there";
  Stopped("a", 7);
  Stopped("b", 7);
  EXPECT_EQ(Outcome(), "");
}

TEST_F(SuspensionTest, ASaveThatFailsEndsIt) {
  Begin();
  Stopped("a", 7);
  Stopped("b", 7);
  Part("a", 6, "disk full");
  EXPECT_EQ(Outcome(), "none") << "another step's";
  Part("a", 7, "disk full");
  EXPECT_THAT(Outcome(), HasSubstr("step 7 was not saved: disk full"));
}

TEST_F(SuspensionTest, ASaveThatFailedBeforeAllHadStoppedEndsIt) {
  Begin();
  Stopped("a", 7);
  Part("a", 7, "disk full");
  Part("b", 7);
  Stopped("b", 7);
  EXPECT_THAT(Outcome(), HasSubstr("disk full"));
}

TEST_F(SuspensionTest, AStorageThatFailsEndsIt) {
  Begin();
  Stopped("a", 7);
  Stopped("b", 7);
  Part("a", 7);
  Part("b", 7);
  Committed(7, UnavailableError("no route"));
  EXPECT_THAT(Outcome(), HasSubstr("no route"));
}

TEST_F(SuspensionTest, ItIsOverInTime) {
  Begin();
  ASSERT_EQ(suspension_.NextDeadline(), now_ + std::chrono::seconds(10));
  now_ += std::chrono::seconds(10);
  EXPECT_THAT(Outcome(), HasSubstr("did not end in time"));
  Stopped("a", 7);
  Stopped("b", 7);
  EXPECT_THAT(Outcome(), HasSubstr("was not saved in time"));
  Part("a", 7);
  Part("b", 7);
  Committed(7);
  EXPECT_EQ(Outcome(), "") << "what is there counts";
  suspension_.Drop();
  EXPECT_FALSE(suspension_.NextDeadline());
}

TEST_F(SuspensionTest, StopsAfterUnlikeStepsAreNoticed) {
  Begin();
  EXPECT_TRUE(Stopped("a", 7));
  EXPECT_FALSE(Stopped("b", 8));
}

TEST_F(SuspensionTest, WhoComesBackHearsItAgain) {
  const auto repeat = [&](const std::string& name) {
    Heard();
    suspension_.Resend(roster_.at(name), generations_, out_);
    return Heard();
  };
  EXPECT_THAT(repeat("a"), IsEmpty());
  Begin();
  EXPECT_THAT(repeat("a"), ElementsAre("a stop"));
  Stopped("a", 7);
  EXPECT_THAT(repeat("a"), IsEmpty()) << "it has answered";
  Stopped("b", 7);
  EXPECT_THAT(repeat("a"), ElementsAre("a save 7"));
  generations_.RemoveMember("a");
  EXPECT_THAT(repeat("a"), IsEmpty());
}

TEST_F(SuspensionTest, WithoutAMemberOrAGenerationItCannotBeActive) {
  Begin();
  generations_.RemoveMember("a");
  EXPECT_THAT(suspension_.Check(generations_).ToString(), HasSubstr("lost members"));
  generations_.Drop();
  EXPECT_THAT(suspension_.Check(generations_).ToString(), HasSubstr("nobody holds"));
}

}  // namespace
}  // namespace heddle::elastic
