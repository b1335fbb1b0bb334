// What the system says that this process takes, before and after it takes more.
#include "base/system/process_memory.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace heddle {
namespace {

constexpr int64_t kTaken = int64_t{64} << 20;

TEST(ProcessMemoryTest, WhatIsTakenCountsAndItsPeakStaysUntilItIsForgotten) {
  ForgetResidentPeak();
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 1 << 20);
  {
    const std::vector<std::byte> taken(static_cast<size_t>(kTaken), std::byte{1});
    EXPECT_GE(ResidentBytes(), before + kTaken / 2);
  }
  const int64_t peak = ResidentPeak();
  EXPECT_GE(peak, before + kTaken / 2);
  ForgetResidentPeak();
  EXPECT_LT(ResidentBytes(), peak - kTaken / 2) << "freed memory is given back";
  EXPECT_GE(ResidentPeak(), ResidentBytes() / 2);
  EXPECT_LE(ResidentPeak(), peak);
}

}  // namespace
}  // namespace heddle
