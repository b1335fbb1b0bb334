// What the system says that this process takes, before and after it takes more.
#include "base/system/process_memory.h"

#include <cstdint>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace heddle {
namespace {

constexpr int64_t kTaken = int64_t{64} << 20;

// From the system itself: a sanitizer's malloc keeps what is freed.
TEST(ProcessMemoryTest, WhatIsTakenCountsAndItsPeakStaysUntilItIsForgotten) {
  ForgetResidentPeak();
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 1 << 20);
  void* const taken = ::mmap(nullptr, kTaken, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(taken, MAP_FAILED);
  EXPECT_GE(ResidentBytes(), before + kTaken / 2);
  ASSERT_EQ(::munmap(taken, kTaken), 0);
  EXPECT_LT(ResidentBytes(), before + kTaken / 2);
  const int64_t peak = ResidentPeak();
  EXPECT_GE(peak, before + kTaken / 2);
  ForgetResidentPeak();
  EXPECT_LE(ResidentPeak(), peak);
  EXPECT_GE(ResidentPeak(), before / 2);
}

}  // namespace
}  // namespace heddle
