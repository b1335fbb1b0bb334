/// \file
/// What a checkpoint records beside its state, in fields of one object.
#include "checkpoint/format/extra.h"

#include <cmath>

#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

TEST(ExtraTest, TheLossStandsInExtraBesideWhatElseIsThere) {
  JobState job;
  EXPECT_EQ(ValidationLoss(job), std::nullopt);
  ASSERT_TRUE(SetValidationLoss(job, 2.3125).ok());
  EXPECT_EQ(job.extra, R"({"validation_loss":2.3125})");
  EXPECT_EQ(ValidationLoss(job), 2.3125);
  job.extra = R"({"mine": [1, 2]})";
  ASSERT_TRUE(SetValidationLoss(job, 0.1).ok());
  EXPECT_EQ(ValidationLoss(job), 0.1);
  EXPECT_NE(job.extra.find(R"("mine":[1,2])"), std::string::npos);
  ASSERT_TRUE(SetValidationLoss(job, INFINITY).ok());
  EXPECT_EQ(ValidationLoss(job), 0.1);
  job.extra = "[]";
  EXPECT_EQ(SetValidationLoss(job, 1).code(), StatusCode::kInvalidArgument);
  for (const char* extra :
       {"", "{", "[1]", "{}", R"({"validation_loss": "2"})", R"({"validation_loss": null})"}) {
    job.extra = extra;
    EXPECT_EQ(ValidationLoss(job), std::nullopt) << extra;
  }
}

TEST(ExtraTest, TheDatasFingerprintStandsInExtraToo) {
  JobState job;
  EXPECT_EQ(DataFingerprint(job), 0U);
  ASSERT_TRUE(SetDataFingerprint(job, 0).ok());
  EXPECT_EQ(job.extra, "") << "nothing is known";
  ASSERT_TRUE(SetDataFingerprint(job, 0xF1E2D3C4B5A697U).ok());
  EXPECT_EQ(job.extra, R"({"data":"00f1e2d3c4b5a697"})");
  ASSERT_TRUE(SetValidationLoss(job, 0.5).ok());
  EXPECT_EQ(DataFingerprint(job), 0xF1E2D3C4B5A697U);
  EXPECT_EQ(ValidationLoss(job), 0.5);
  for (const char* extra : {"{", "[1]", R"({"data": 7})", R"({"data": "7x"})", R"({"data": ""})"}) {
    job.extra = extra;
    EXPECT_EQ(DataFingerprint(job), 0U) << extra;
  }
}

TEST(ExtraTest, TheGuaranteeStandsInExtraToo) {
  JobState job;
  EXPECT_EQ(GuaranteeOf(job), GuaranteeRecord{.guarantee = "unknown"}) << "an earlier build's";
  ASSERT_TRUE(SetDataFingerprint(job, 7).ok());
  const GuaranteeRecord record{.guarantee = "per-plan",
                               .reason = "b computes unlike a: blas Haswell, not SkylakeX",
                               .arithmetic = {{"blas", "SkylakeX"}, {"threads", "2"}}};
  ASSERT_TRUE(SetGuarantee(job, record).ok());
  EXPECT_EQ(GuaranteeOf(job), record);
  EXPECT_EQ(DataFingerprint(job), 7U);
  for (const char* extra :
       {"{", "[1]", R"({"guarantee": "per-plan"})", R"({"guarantee": {"guarantee": "per-plan"}})",
        R"({"guarantee": {"guarantee": 1, "reason": "", "arithmetic": {}}})",
        R"({"guarantee": {"guarantee": "per-plan", "reason": "", "arithmetic": {"a": 1}}})"}) {
    job.extra = extra;
    EXPECT_EQ(GuaranteeOf(job), GuaranteeRecord()) << extra;
  }
}

}  // namespace
}  // namespace heddle::checkpoint
