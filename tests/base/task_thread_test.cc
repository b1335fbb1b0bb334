#include "base/task_thread.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(TaskThreadTest, TasksRunInOrderOnOneThread) {
  std::vector<int> done;
  std::promise<void> last;
  std::set<std::thread::id> threads;
  TaskThread thread("test");
  for (int i = 0; i < 100; ++i) {
    thread.Post([&, i] {
      done.push_back(i);
      threads.insert(std::this_thread::get_id());
      if (i == 99) {
        last.set_value();
      }
    });
  }
  last.get_future().wait();
  ASSERT_EQ(done.size(), 100U);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(threads.size(), 1U);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0U);
}

// At the end the task that runs is waited for, and those behind it are dropped or run.
int RunAtEnd(TaskThread::AtEnd at_end) {
  std::promise<void> begun;
  std::promise<void> closing;
  std::atomic<int> done = 0;
  {
    TaskThread thread("test", at_end);
    thread.Post([&] {
      begun.set_value();
      closing.get_future().wait();
      ++done;
    });
    thread.Post([&] { ++done; });
    thread.Post([&] { ++done; });
    begun.get_future().wait();
    thread.Close();
    closing.set_value();
  }
  return done;
}

TEST(TaskThreadTest, WhatHasNotBegunIsDroppedOrFinishedAtTheEnd) {
  EXPECT_EQ(RunAtEnd(TaskThread::AtEnd::kFinish), 3);
  EXPECT_EQ(RunAtEnd(TaskThread::AtEnd::kDrop), 1);
}

}  // namespace
}  // namespace heddle
