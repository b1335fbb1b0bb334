// What is known is logged for good before it is stored, and no more often than that.
#include "elastic/store/ordered_store.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

class RecordingStore : public StateStore {
 public:
  explicit RecordingStore(std::vector<std::string>& done) : done_(done) {}
  Result<std::optional<DurableState>> Load() override {
    DurableState state;
    state.known_step = 5;
    return std::optional(state);
  }
  Status Save(const DurableState& state) override {
    done_.push_back("store " + std::to_string(state.known_step));
    return Status::Ok();
  }

 private:
  std::vector<std::string>& done_;
};

class OrderedStoreTest : public testing::Test {
 protected:
  Status SaveStep(int64_t step) {
    DurableState state;
    state.known_step = step;
    return store_.Save(state);
  }

  std::vector<std::string> done_;
  Status log_;
  OrderedStore store_{std::make_unique<RecordingStore>(done_), [this] {
                        done_.emplace_back("log");
                        return log_;
                      }};
};

TEST_F(OrderedStoreTest, TheLogIsDurableBeforeFurtherStepsAreKnown) {
  for (const int64_t step : {0, 3, 3, 4, 2, 3}) {
    EXPECT_TRUE(SaveStep(step).ok());
  }
  EXPECT_THAT(done_, ElementsAre("store 0", "log", "store 3", "store 3", "log", "store 4",
                                 "store 2", "log", "store 3"))
      << "after going back steps are logged once more";
}

TEST_F(OrderedStoreTest, TheLogIsDurableBeforeAnotherGenerationIsInForce) {
  DurableState state;
  state.held.emplace().number = 4;
  EXPECT_TRUE(store_.Save(state).ok());
  EXPECT_TRUE(store_.Save(state).ok());
  state.held->number = 6;
  EXPECT_TRUE(store_.Save(state).ok());
  state.held.reset();
  EXPECT_TRUE(store_.Save(state).ok());
  EXPECT_THAT(done_, ElementsAre("log", "store 0", "store 0", "log", "store 0", "store 0"));
}

TEST_F(OrderedStoreTest, WithoutTheLogNothingIsStored) {
  log_ = ResourceExhaustedError("disk full");
  EXPECT_EQ(SaveStep(1).code(), StatusCode::kUnavailable) << "it may be tried again";
  log_ = Status::Ok();
  EXPECT_TRUE(SaveStep(1).ok());
  EXPECT_THAT(done_, ElementsAre("log", "log", "store 1"));
}

TEST_F(OrderedStoreTest, WhatAPredecessorStoredWasLogged) {
  ASSERT_EQ((*store_.Load())->known_step, 5);
  EXPECT_TRUE(SaveStep(5).ok());
  EXPECT_THAT(done_, ElementsAre("store 5"));
}

}  // namespace
}  // namespace heddle::elastic
