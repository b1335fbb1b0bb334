#include "base/thread.h"

#include <array>
#include <atomic>
#include <string>

#include <gtest/gtest.h>
#include <pthread.h>

namespace heddle {
namespace {

TEST(ThreadTest, HasItsNameAndIsJoinedByItsDestructor) {
  std::string name;
  {
    const Thread thread("a-name-longer-than-the-kernel-keeps", [&] {
      std::array<char, 32> buffer{};
      pthread_getname_np(pthread_self(), buffer.data(), buffer.size());
      name = buffer.data();
    });
  }
  EXPECT_EQ(name, "a-name-longer-t");
}

TEST(ThreadTest, AssignmentJoinsTheThreadItReplaces) {
  std::atomic<int> ended = 0;
  Thread thread("first", [&] { ++ended; });
  thread = Thread("second", [&] { ++ended; });
  EXPECT_GE(ended.load(), 1);
  thread.Join();
  EXPECT_EQ(ended.load(), 2);
  EXPECT_FALSE(thread.joinable());
}

}  // namespace
}  // namespace heddle
