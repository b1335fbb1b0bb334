// The newest plan is prepared for once, and every worker of the change answers.
#include "elastic/member/preparation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/member/taken.h"

namespace heddle::elastic {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class PreparationTest : public testing::Test {
 protected:
  void Prepare(int64_t generation, const std::vector<std::string>& members) {
    wire::Prepare message;
    message.set_generation(generation);
    message.set_plan_json("plan");
    for (const std::string& name : members) {
      message.add_members()->set_name(name);
    }
    preparation_.Take(message, "b", taken_.out());
  }

  Taken taken_;
  Preparation preparation_;
};

TEST_F(PreparationTest, AMemberLowersThePlanAndAnswersThen) {
  Prepare(3, {"a", "b"});
  EXPECT_THAT(taken_.Words(), ElementsAre("act"));
  EXPECT_EQ(taken_.Find<LowerPlan>()->generation, 3);
  EXPECT_EQ(taken_.Find<LowerPlan>()->plan_json, "plan");
  Prepare(3, {"a", "b"});
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "it is being lowered";
  preparation_.TakeLowered({3, Status::Ok(), 77}, taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("prepared"));
  EXPECT_EQ(taken_.Message().prepared().program_hash(), 77U);
  EXPECT_EQ(taken_.Message().prepared().error(), "");
  Prepare(3, {"a", "b"});
  EXPECT_THAT(taken_.Words(), ElementsAre("prepared")) << "asked again, it answers again";
  EXPECT_EQ(preparation_.RankOf("b"), 1);
  EXPECT_EQ(preparation_.RankOf("c"), -1);
}

TEST_F(PreparationTest, WhoOnlyGivesItsStateAnswersAtOnce) {
  Prepare(3, {"a"});
  EXPECT_THAT(taken_.Words(), ElementsAre("prepared"));
  EXPECT_EQ(taken_.Message().prepared().generation(), 3);
}

TEST_F(PreparationTest, APlanThatCannotBeLoweredIsSaid) {
  Prepare(3, {"b"});
  taken_.Words();
  preparation_.TakeLowered({3, InvalidArgumentError("no such operator"), 0}, taken_.out());
  taken_.Words();
  EXPECT_THAT(taken_.Message().prepared().error(), testing::HasSubstr("no such operator"));
}

TEST_F(PreparationTest, OnlyTheNewestPlanCounts) {
  Prepare(3, {"b"});
  Prepare(5, {"b"});
  taken_.Words();
  EXPECT_EQ(preparation_.Find(3), nullptr);
  EXPECT_NE(preparation_.Find(5), nullptr);
  preparation_.TakeLowered({3, Status::Ok(), 1}, taken_.out());
  Prepare(4, {"b"});
  EXPECT_THAT(taken_.Words(), IsEmpty());
  preparation_.DropBelow(5);
  EXPECT_NE(preparation_.Find(5), nullptr);
  preparation_.TakeLowered({5, Status::Ok(), 1}, taken_.out());
  taken_.Words();
  preparation_.Resend(taken_.out());
  EXPECT_THAT(taken_.Words(), ElementsAre("prepared"));
  preparation_.DropBelow(6);
  EXPECT_EQ(preparation_.Find(5), nullptr);
  preparation_.Resend(taken_.out());
  EXPECT_THAT(taken_.Words(), IsEmpty()) << "it is over";
}

}  // namespace
}  // namespace heddle::elastic
