// Numbers of generations are never given out twice, whatever is restored; and who belongs to the
// generation in force.
#include "elastic/control/membership/generations.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

DurableGeneration Third() {
  DurableGeneration generation{.number = 3, .plan = {}, .members = {{"a", "1"}, {"b", "2"}}};
  generation.plan.members = {"a", "b"};
  return generation;
}

TEST(GenerationsTest, TheCounterNeverFalls) {
  Generations generations(7);
  EXPECT_EQ(generations.counter(), 7);
  generations.Allot(9);
  EXPECT_EQ(generations.counter(), 9);
  generations.Allot(8);
  EXPECT_EQ(generations.counter(), 9);
  generations.Drop();
  EXPECT_EQ(generations.counter(), 9);
}

TEST(GenerationsTest, WhoIsLostIsNoMemberButWasPlanned) {
  Generations generations(3);
  EXPECT_FALSE(generations.IsMember("a"));
  EXPECT_FALSE(generations.WasPlanned("a"));
  generations.RemoveMember("a");
  generations.Begin(Third());
  EXPECT_TRUE(generations.IsMember("a"));
  EXPECT_FALSE(generations.IsMember("c"));
  generations.RemoveMember("a");
  EXPECT_FALSE(generations.IsMember("a"));
  EXPECT_TRUE(generations.WasPlanned("a"));
  EXPECT_TRUE(generations.IsMember("b"));
  EXPECT_FALSE(generations.WasPlanned("c"));
  generations.Drop();
  EXPECT_FALSE(generations.IsMember("b"));
  EXPECT_FALSE(generations.WasPlanned("b"));
}

TEST(GenerationsTest, ASuccessorHasWhatWasStored) {
  Generations generations(5);
  generations.Begin(Third());
  generations.RemoveMember("b");
  DurableState durable;
  generations.Store(durable);
  Generations successor;
  successor.Restore(durable);
  EXPECT_EQ(successor.counter(), 5);
  ASSERT_TRUE(successor.held().has_value());
  EXPECT_EQ(successor.held()->number, 3);
  EXPECT_TRUE(successor.IsMember("a"));
  EXPECT_FALSE(successor.IsMember("b"));
  generations.Drop();
  generations.Store(durable);
  successor.Restore(durable);
  EXPECT_FALSE(successor.held().has_value());
}

TEST(GenerationsTest, AGenerationAboveTheCounterIsABrokenInvariant) {
  Generations generations(2);
  generations.Begin(Third());
  EXPECT_EQ(generations.Check().code(), StatusCode::kInternal);
  generations.Allot(3);
  EXPECT_TRUE(generations.Check().ok());
}

}  // namespace
}  // namespace heddle::elastic
