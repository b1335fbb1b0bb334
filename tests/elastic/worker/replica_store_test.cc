// Which snapshots a worker keeps, and that memory goes from one to the next.
#include "elastic/worker/replicas/replica_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

class ReplicaStoreTest : public testing::Test {
 protected:
  void Put(int64_t step, int owner, int64_t bytes = 1000, int64_t generation = 1) {
    auto part = store_.Take(bytes);
    ASSERT_TRUE(part.ok()) << part.status().ToString();
    (*part)->part.raw_bytes = bytes;
    store_.Put({.step = step, .generation = generation}, owner, *std::move(part));
  }
  // Its parts come from ranks 0 and 1.
  void Make(int64_t step, bool whole, int64_t generation = 1) {
    store_.Begin({.step = step, .generation = generation});
    Put(step, 0, 1000, generation);
    Put(step, 1, 1000, generation);
    if (whole) {
      store_.MarkWhole({.step = step, .generation = generation});
    }
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const auto& held : store_.List()) {
      steps.push_back(held.step());
    }
    return steps;
  }
  double Bytes() { return registry_.GetGauge("heddle_replica_bytes", "").Value(); }

  metrics::Registry registry_;
  ReplicaStore store_{registry_};
};

TEST_F(ReplicaStoreTest, KeepsTheNewestWholeSnapshotBesideTheOneThatBegins) {
  Make(1, true);
  Make(2, true);
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  store_.Begin({.step = 3, .generation = 1});
  EXPECT_THAT(Steps(), ElementsAre(2)) << "a snapshot without a part is nothing to tell of";
  Put(3, 0);
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
  store_.Begin({.step = 4, .generation = 1});
  Put(4, 0);
  EXPECT_THAT(Steps(), ElementsAre(2, 4)) << "step 3 never was whole";
  Make(5, true, 2);
  EXPECT_THAT(Steps(), ElementsAre(2, 5));
  store_.Begin({.step = 6, .generation = 2});
  EXPECT_THAT(Steps(), ElementsAre(5));
}

TEST_F(ReplicaStoreTest, TellsWhatItHolds) {
  store_.Begin({.step = 4, .generation = 3});
  Put(4, 2, 100, 3);
  Put(4, 0, 50, 3);
  const auto list = store_.List();
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].generation(), 3);
  EXPECT_EQ(list[0].step(), 4);
  EXPECT_THAT(list[0].owners(), ElementsAre(0, 2));
  EXPECT_EQ(list[0].raw_bytes(), 150);
  const auto found = store_.Find({.step = 4, .generation = 3}, {2, 0});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)[0]->part.raw_bytes, 100);
  EXPECT_EQ((*found)[1]->part.raw_bytes, 50);
  EXPECT_EQ(store_.Find({.step = 4, .generation = 3}, {1}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_.Find({.step = 4, .generation = 2}, {0}).status().code(), StatusCode::kNotFound);
}

TEST_F(ReplicaStoreTest, DropsWhatIsOfAnotherHistory) {
  Make(4, true);
  Make(5, false);
  store_.DropAfter(4);
  EXPECT_THAT(Steps(), ElementsAre(4));
  Put(5, 0);
  EXPECT_THAT(Steps(), ElementsAre(4)) << "it comes too late";
  store_.DropAfter(3);
  EXPECT_TRUE(Steps().empty());
}

TEST_F(ReplicaStoreTest, MemoryGoesFromOneSnapshotToTheNext) {
  constexpr double kPart = 2 << 20;  // Memory comes in huge pages.
  Make(1, true);
  EXPECT_EQ(Bytes(), 2 * kPart);
  for (int64_t step = 2; step < 10; ++step) {
    Make(step, true);
    EXPECT_EQ(Bytes(), 4 * kPart);
  }
  store_.Trim();
  EXPECT_EQ(Bytes(), 4 * kPart) << "all of it is in use";
  store_.DropAfter(0);
  EXPECT_EQ(Bytes(), 4 * kPart);
  store_.Trim();
  EXPECT_EQ(Bytes(), 0);
  store_.Stock(1000);
  store_.Stock(1000);
  EXPECT_EQ(Bytes(), kPart) << "one part is ready";
}

TEST_F(ReplicaStoreTest, WhatIsReadIsNotWrittenOver) {
  Make(1, true);
  const auto read = store_.Find({.step = 1, .generation = 1}, {0});
  ASSERT_TRUE(read.ok());
  store_.DropAfter(0);
  for (int i = 0; i < 3; ++i) {
    const auto taken = store_.Take(1000);
    ASSERT_TRUE(taken.ok());
    EXPECT_NE(taken->get(), (*read)[0].get());
  }
}

TEST_F(ReplicaStoreTest, TheSmallestMemoryThatIsLargeEnoughIsTaken) {
  store_.Begin({.step = 1, .generation = 1});
  Put(1, 0, 1 << 20);
  Put(1, 1, 9 << 20);
  Put(1, 2, 5 << 20);
  store_.DropAfter(0);
  const auto taken = store_.Take(3 << 20);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ((*taken)->memory.size(), 6 << 20);
  const auto grown = store_.Take(20 << 20);
  ASSERT_TRUE(grown.ok());
  EXPECT_GE((*grown)->memory.size(), 20 << 20);
}

}  // namespace
}  // namespace heddle::elastic
