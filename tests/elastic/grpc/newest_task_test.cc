// Of what is posted while the thread is busy only the newest is done.
#include "elastic/grpc/newest_task.h"

#include <future>
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
    planner.Post([&] {
      begun.set_value();
      go_on.get_future().wait();
      done.push_back(1);
    });
    begun.get_future().wait();
    planner.Post([&] { done.push_back(2); });
    planner.Post([&] { done.push_back(3); });
    planner.Post([&] {
      done.push_back(4);
      ended.set_value();
    });
    go_on.set_value();
    ended.get_future().wait();
  }
  EXPECT_THAT(done, testing::ElementsAre(1, 4));
}

}  // namespace
}  // namespace heddle::elastic
