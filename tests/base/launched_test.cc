#include "base/system/launched.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace heddle {
namespace {

std::optional<Launched> In(const std::map<std::string, std::string>& environment) {
  return FindLauncher([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchedTest, EachLauncherSaysItInItsOwnWords) {
  const auto mpirun = In({{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  ASSERT_TRUE(mpirun);
  EXPECT_EQ(mpirun->launcher, "mpirun");
  EXPECT_EQ(mpirun->rank, 3);
  EXPECT_EQ(mpirun->size, 4);
  EXPECT_EQ(mpirun->local_rank, 1);

  const auto srun =
      In({{"SLURM_PROCID", "7"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "3"}});
  ASSERT_TRUE(srun);
  EXPECT_EQ(srun->launcher, "srun");
  EXPECT_EQ(srun->rank, 7);
  EXPECT_EQ(srun->size, 8);
  EXPECT_EQ(srun->local_rank, 3);

  const auto pmix = In({{"PMIX_RANK", "2"}});
  ASSERT_TRUE(pmix);
  EXPECT_EQ(pmix->rank, 2);
  EXPECT_EQ(pmix->size, 0);
  EXPECT_EQ(pmix->local_rank, 0);
}

TEST(LaunchedTest, AnImpossibleLocalRankIsNone) {
  for (const char* const rank : {"65536", "2147483647", "99999999999", "-1", "1x", ""}) {
    const auto mpirun = In({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_RANK", rank}});
    ASSERT_TRUE(mpirun) << rank;
    EXPECT_EQ(mpirun->local_rank, 0) << rank;
  }
  EXPECT_EQ(In({{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "65535"}})->local_rank, 65'535);
}

TEST(LaunchedTest, TheInnermostLauncherCounts) {
  const auto nested = In({{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(nested);
  EXPECT_EQ(nested->launcher, "mpirun");
  EXPECT_EQ(nested->rank, 1);
}

TEST(LaunchedTest, WithoutItsRankAProcessHasNoLauncher) {
  std::map<std::string, std::string> environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                                 {"OMPI_COMM_WORLD_SIZE", "2"},
                                                 {"SLURM_PROCID", "1"},
                                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                                 {"PMI_RANK", "1"},
                                                 {"PMIX_RANK", "1"}};
  ASSERT_TRUE(In(environment));
  for (const char* variable : RankVariables()) {
    EXPECT_TRUE(environment.contains(variable)) << variable;
    environment[variable] = "";
  }
  EXPECT_FALSE(In(environment));
}

TEST(LaunchedTest, ABatchScriptIsNoStepAndNonsenseIsNoRank) {
  EXPECT_FALSE(In({}));
  EXPECT_FALSE(In({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_FALSE(In({{"OMPI_COMM_WORLD_RANK", ""}}));
  EXPECT_FALSE(In({{"OMPI_COMM_WORLD_RANK", "-1"}}));
  EXPECT_FALSE(In({{"OMPI_COMM_WORLD_RANK", "3x"}}));
  EXPECT_FALSE(In({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}));
}

}  // namespace
}  // namespace heddle
