#include "elastic/launcher/rank_name.h"

#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

std::optional<Launched> Rank(int rank, int size) {
  return Launched{.launcher = "mpirun", .rank = rank, .size = size};
}

TEST(RankNameTest, EachRankGetsItsOwn) {
  EXPECT_EQ(*NameOfRank("a,b,c", Rank(0, 3)), "a");
  EXPECT_EQ(*NameOfRank("a,b,c", Rank(2, 3)), "c");
  EXPECT_EQ(*NameOfRank("", Rank(2, 3)), "worker-2");
  EXPECT_EQ(*NameOfRank("a", Rank(0, 1)), "a");
}

// `mpirun sh -c 'heddle worker --name w-$OMPI_COMM_WORLD_RANK'`, and a launcher that sets PMIX_RANK
// alone.
TEST(RankNameTest, OneNameIsThisWorkers) {
  EXPECT_EQ(*NameOfRank("w-1", Rank(1, 2)), "w-1");
  EXPECT_EQ(*NameOfRank("a", Rank(0, 0)), "a");
  EXPECT_EQ(*NameOfRank("a", Rank(3, 0)), "a");
}

// `srun --pty bash` is rank 0 of 1, and whatever is started in that shell has its variables.
TEST(RankNameTest, TheOnlyRankNamesNobody) {
  EXPECT_EQ(*NameOfRank("", Rank(0, 1)), "");
  EXPECT_EQ(*NameOfRank("", Rank(0, 2)), "worker-0");
  EXPECT_EQ(*NameOfRank("", Rank(0, 0)), "worker-0") << "a launcher that does not say how many";
  EXPECT_EQ(*NameOfRank("a,b", Rank(0, 1)), "a");
}

TEST(RankNameTest, WithoutALauncherTheNameIsAsGiven) {
  EXPECT_EQ(*NameOfRank("", std::nullopt), "");
  EXPECT_EQ(*NameOfRank("a", std::nullopt), "a");
}

TEST(RankNameTest, NamesThatDoNotFitAreRefused) {
  for (const auto& [names, launched] :
       std::initializer_list<std::pair<std::string, std::optional<Launched>>>{
           {"a,b", std::nullopt}, {"a,b", Rank(2, 3)}, {"a,,c", Rank(1, 3)}}) {
    const auto name = NameOfRank(names, launched);
    EXPECT_EQ(name.status().code(), StatusCode::kInvalidArgument) << names;
  }
}

}  // namespace
}  // namespace heddle::elastic
