// Of what is posted while the thread is busy only the newest is done, and what runs is asked to
// stop.
#include "elastic/grpc/newest_task.h"

#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

TEST(NewestTaskTest, WhatIsMootWhenTheThreadIsFreeIsLeftOut) {
  std::vector<int> done;
  std::promise<void> begun;
  std::promise<void> go_on;
  std::promise<void> ended;
  {
    NewestTask planner("planner");
    planner.Post([&](const std::stop_token& /*stop*/) {
      begun.set_value();
      go_on.get_future().wait();
      done.push_back(1);
    });
    begun.get_future().wait();
    planner.Post([&](const std::stop_token& /*stop*/) { done.push_back(2); });
    planner.Post([&](const std::stop_token& /*stop*/) { done.push_back(3); });
    planner.Post([&](const std::stop_token& /*stop*/) {
      done.push_back(4);
      ended.set_value();
    });
    go_on.set_value();
    ended.get_future().wait();
  }
  EXPECT_THAT(done, testing::ElementsAre(1, 4));
}

// A task that ends by nothing but its token.
NewestTask::Task UntilStopped(std::promise<void>& begun) {
  return [&begun](const std::stop_token& stop) {
    begun.set_value();
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
}

TEST(NewestTaskTest, WhatRunsIsStoppedByANewerOneAndByTheEnd) {
  std::promise<void> first;
  std::promise<void> second;
  NewestTask planner("planner");
  planner.Post(UntilStopped(first));
  first.get_future().wait();
  planner.Post(UntilStopped(second));
  second.get_future().wait();
}

}  // namespace
}  // namespace heddle::elastic
