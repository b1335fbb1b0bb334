// Whom a worker or a command line asks next.
#include "elastic/protocol/coordinator_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::ElementsAre;

TEST(CoordinatorRouteTest, OneIsAskedForEver) {
  CoordinatorRoute route("a:1");
  EXPECT_EQ(route.current(), "a:1");
  route.MoveOn("");
  EXPECT_EQ(route.current(), "a:1");
  EXPECT_EQ(CoordinatorRoute("").current(), "") << "whoever connects says what is wrong with it";
}

TEST(CoordinatorRouteTest, SeveralTakeTurns) {
  CoordinatorRoute route(",a:1,,b:2,c:3,");
  EXPECT_THAT(route.listed(), ElementsAre("a:1", "b:2", "c:3"));
  for (const char* expected : {"a:1", "b:2", "c:3", "a:1"}) {
    EXPECT_EQ(route.current(), expected);
    route.MoveOn("");
  }
}

TEST(CoordinatorRouteTest, WhoIsNamedIsAskedNext) {
  CoordinatorRoute route("a:1,b:2");
  route.MoveOn("x:9");
  EXPECT_EQ(route.current(), "x:9");
  EXPECT_TRUE(route.is_named());
  route.MoveOn("y:9");
  EXPECT_EQ(route.current(), "b:2") << "the list has its turn: two may name each other";
  EXPECT_FALSE(route.is_named());
  route.MoveOn("b:2");
  EXPECT_EQ(route.current(), "a:1") << "one that names itself is no leader yet";
}

}  // namespace
}  // namespace heddle::elastic
