// Tokens and revoked certificates as facts: names, times, uses.
#include "elastic/control/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

constexpr double kNow = 1'795'600'000;

std::string HashNumber(int number) {
  return fmt::format("{:064x}", number);
}

TEST(AdmissionTest, NamesArePatterns) {
  EXPECT_TRUE(IsNameOf("gpu-7", "gpu-*"));
  EXPECT_TRUE(IsNameOf("gpu-7", "gpu-?"));
  EXPECT_TRUE(IsNameOf("gpu-7", "gpu-7"));
  EXPECT_TRUE(IsNameOf("anything", "*"));
  for (const char* other : {"gpu-", "gpu-77", "cpu-7", "gpu-7x", ".gpu"}) {
    EXPECT_FALSE(IsNameOf(other, "gpu-?")) << other;
  }
  EXPECT_FALSE(IsNameOf("a", "[ab]")) << "no other signs stand for anything";
  EXPECT_FALSE(IsNameOf("a", ""));
}

TEST(AdmissionTest, AGrantHasItsTimeAndItsUses) {
  Admission admission;
  ASSERT_TRUE(
      AddGrant(admission, HashNumber(1), {.names = "gpu-*", .uses_left = 2}, 60, kNow).ok());
  EXPECT_EQ(admission.grants.at(HashNumber(1)).ends, kNow + 60);
  EXPECT_EQ(AddGrant(admission, HashNumber(1), {.names = "*", .uses_left = 9}, 60, kNow).code(),
            StatusCode::kAlreadyExists);
  const Admission before = admission;
  EXPECT_EQ(UseGrant(admission, HashNumber(1), "cpu-1", kNow).code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(UseGrant(admission, HashNumber(2), "gpu-1", kNow).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(UseGrant(admission, HashNumber(1), "gpu-1", kNow + 60).code(),
            StatusCode::kUnauthenticated);
  EXPECT_EQ(admission, before) << "what is refused takes no use";
  EXPECT_TRUE(UseGrant(admission, HashNumber(1), "gpu-1", kNow).ok());
  EXPECT_TRUE(UseGrant(admission, HashNumber(1), "gpu-1", kNow + 59).ok());
  const Status third = UseGrant(admission, HashNumber(1), "gpu-2", kNow + 1);
  EXPECT_EQ(third.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(third.message(), HasSubstr("has been used"));
  EXPECT_THAT(CheckGrant(admission, HashNumber(1), kNow + 61).message(), HasSubstr("has ended"));
  EXPECT_THAT(CheckGrant(admission, HashNumber(2), kNow).message(), HasSubstr("does not know"));
  EXPECT_EQ(admission.grants.at(HashNumber(1)).uses_left, 0);
}

TEST(AdmissionTest, WhatCannotBeIsNotKept) {
  Admission admission;
  const auto add = [&](const std::string& hash, const char* names, double seconds, int64_t uses) {
    return AddGrant(admission, hash, {.names = names, .uses_left = uses}, seconds, kNow).code();
  };
  const StatusCode bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(add("00", "a", 60, 1), bad);
  EXPECT_EQ(add(std::string(64, 'g'), "a", 60, 1), bad);
  EXPECT_EQ(add(HashNumber(1), "", 60, 1), bad);
  EXPECT_EQ(add(HashNumber(1), "a/b", 60, 1), bad);
  EXPECT_EQ(add(HashNumber(1), ".a", 60, 1), bad);
  EXPECT_EQ(add(HashNumber(1), "a", 0, 1), bad);
  EXPECT_EQ(add(HashNumber(1), "a", std::numeric_limits<double>::quiet_NaN(), 1), bad);
  EXPECT_EQ(add(HashNumber(1), "a", kMaxGrantSeconds + 1, 1), bad);
  EXPECT_EQ(add(HashNumber(1), "a", 60, 0), bad);
  EXPECT_EQ(add(HashNumber(1), "a", 60, kMaxUses + 1), bad);
  EXPECT_TRUE(admission.grants.empty());
}

TEST(AdmissionTest, ThoseThatHaveEndedMakeRoom) {
  Admission admission;
  for (size_t i = 0; i < kMaxGrants; ++i) {
    ASSERT_TRUE(AddGrant(admission, HashNumber(static_cast<int>(i)), {.names = "a", .uses_left = 1},
                         60, kNow)
                    .ok());
  }
  const std::string next = HashNumber(1'000'000);
  EXPECT_EQ(AddGrant(admission, next, {.names = "a", .uses_left = 1}, 60, kNow).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(AddGrant(admission, next, {.names = "a", .uses_left = 1}, 60, kNow + 60).ok());
  EXPECT_EQ(admission.grants.size(), 1U);
}

TEST(AdmissionTest, OnlyWhatWasMadeBeforeIsRevoked) {
  Admission admission;
  ASSERT_TRUE(Revoke(admission, "a", kNow).ok());
  EXPECT_EQ(CheckNotRevoked(admission, "a", kNow).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckNotRevoked(admission, "a", kNow - 100).code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(CheckNotRevoked(admission, "a", kNow + 1).ok());
  EXPECT_TRUE(CheckNotRevoked(admission, "b", kNow - 100).ok());
  ASSERT_TRUE(Revoke(admission, "a", kNow + 10).ok());
  EXPECT_FALSE(CheckNotRevoked(admission, "a", kNow + 1).ok());
}

}  // namespace
}  // namespace heddle::elastic
