// What follows of what steps were computed on, rule by rule.
#include "elastic/control/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const Arithmetic kOne = {{"blas", "SkylakeX"}, {"processor", "EPYC"}};
const Arithmetic kOther = {{"blas", "Haswell"}, {"processor", "EPYC"}};

TEST(ProvenanceTest, AGuaranteeIsTheOneOfItsName) {
  for (const Guarantee guarantee :
       {Guarantee::kNone, Guarantee::kUnknown, Guarantee::kPerPlan, Guarantee::kPlanInvariant}) {
    EXPECT_EQ(GuaranteeNamed(NameOf(guarantee)), guarantee);
  }
  EXPECT_EQ(NameOf(Guarantee::kPlanInvariant), "plan-invariant");
  EXPECT_EQ(NameOf(Guarantee::kPerPlan), "per-plan");
  EXPECT_EQ(GuaranteeNamed("for ever"), Guarantee::kUnknown);
}

TEST(ProvenanceTest, ADifferenceNamesThePartsThatDiffer) {
  EXPECT_THAT(DifferenceOf(kOne, kOne), IsEmpty());
  EXPECT_EQ(DifferenceOf(kOne, kOther), "blas SkylakeX, not Haswell");
  EXPECT_EQ(DifferenceOf({{"a", "1"}}, {{"b", "2"}}), "a 1, not unknown; b unknown, not 2");
}

TEST(ProvenanceTest, AlikeWorkersMakeStepsThatAnyPlanWouldMake) {
  EXPECT_EQ(AfterStepsOf({{"a", kOne}, {"b", kOne}}, {}, true), (Provenance{.arithmetic = kOne}));
}

TEST(ProvenanceTest, OneUnlikeWorkerBindsTheBitsToThePlan) {
  const Provenance after = AfterStepsOf({{"a", kOne}, {"b", kOne}, {"c", kOther}}, {}, true);
  EXPECT_EQ(after.guarantee, Guarantee::kPerPlan);
  EXPECT_EQ(after.reason, "c computes unlike a: blas Haswell, not SkylakeX");
  EXPECT_THAT(after.arithmetic, IsEmpty());
}

TEST(ProvenanceTest, WorkersUnlikeThoseOfTheStepsBeforeDoSo) {
  const Provenance after = AfterStepsOf({{"b", kOther}}, {.arithmetic = kOne}, true);
  EXPECT_EQ(after.guarantee, Guarantee::kPerPlan);
  EXPECT_EQ(after.reason,
            "b computes unlike the workers of the steps before: blas Haswell, not SkylakeX");
}

TEST(ProvenanceTest, WhatIsLostStaysLost) {
  for (const Guarantee guarantee : {Guarantee::kPerPlan, Guarantee::kUnknown, Guarantee::kNone}) {
    const Provenance before{.guarantee = guarantee, .reason = "it was so before"};
    EXPECT_EQ(AfterStepsOf({{"a", kOne}}, before, true), before) << NameOf(guarantee);
  }
}

TEST(ProvenanceTest, RelaxedSumsArePromisedNothing) {
  for (const Guarantee guarantee :
       {Guarantee::kPlanInvariant, Guarantee::kPerPlan, Guarantee::kUnknown}) {
    const Provenance after = AfterStepsOf({{"a", kOne}}, {.guarantee = guarantee}, false);
    EXPECT_EQ(after.guarantee, Guarantee::kNone);
    EXPECT_THAT(after.reason, HasSubstr("relaxed"));
  }
}

}  // namespace
}  // namespace heddle::elastic
