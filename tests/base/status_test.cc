#include "base/status.h"

#include <cerrno>
#include <memory>

#include <gtest/gtest.h>

namespace heddle {
namespace {

Result<std::unique_ptr<int>> MakeEven(int value) {
  if (value % 2 != 0) {
    return InvalidArgumentError("{} is odd", value);
  }
  return std::make_unique<int>(value);
}

Result<int> Half(int value) {
  HEDDLE_ASSIGN_OR_RETURN(const auto even, MakeEven(value));
  return *even / 2;
}

Status CheckBoth(int a, int b) {
  HEDDLE_RETURN_IF_ERROR(MakeEven(a).status().WithContext("the first of {}", 2));
  HEDDLE_RETURN_IF_ERROR(MakeEven(b).status());
  return Status::Ok();
}

TEST(StatusTest, MacrosPassValuesAndErrorsOn) {
  EXPECT_EQ(*Half(4), 2);
  EXPECT_EQ(Half(3).status().ToString(), "INVALID_ARGUMENT: 3 is odd");
  EXPECT_TRUE(CheckBoth(2, 4).ok());
  EXPECT_EQ(CheckBoth(1, 2).message(), "the first of 2: 1 is odd");
  EXPECT_EQ(CheckBoth(2, 5).message(), "5 is odd");
}

TEST(StatusTest, ContextLeavesSuccessAlone) {
  EXPECT_EQ(Status().WithContext("x").ToString(), "OK");
}

TEST(StatusTest, ErrnoBecomesACodeAndItsText) {
  EXPECT_EQ(ErrnoError(ENOSPC, "write a").ToString(),
            "RESOURCE_EXHAUSTED: write a: No space left on device");
  EXPECT_EQ(ErrnoError(ECONNRESET, "x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(ErrnoError(EIO, "x").code(), StatusCode::kDataLoss);
}

TEST(StatusDeathTest, AResultOfAnOkStatusAborts) {
  EXPECT_DEATH(const Result<int> result(Status::Ok()), "a result was made of a status that is OK");
}

}  // namespace
}  // namespace heddle
