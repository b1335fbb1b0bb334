/// \file
/// Which of several processes this one is, as its launcher says in the environment. No launcher's
/// library is linked: mpirun, srun and their kin set these variables for any program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace heddle {

struct Launched {
  std::string launcher;  ///< "mpirun", "pmix", "pmi", "srun".
  int rank = 0;          ///< Among the processes that were started together.
  int size = 0;          ///< How many they are; 0: the launcher does not say.
};

using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Nothing when no launcher set its variables, or what they hold is no rank. The innermost launcher
/// counts: Open MPI's variables before Slurm's, in whose allocation mpirun may run. Slurm's count
/// only inside a step (`srun`): a batch script has a SLURM_PROCID, too.
std::optional<Launched> FindLauncher(const EnvironmentLookup& lookup);
/// The same of this process' environment.
std::optional<Launched> FindLauncher();
/// The variables that hold ranks: a process that starts others by itself empties them, so that its
/// children do not take its rank for theirs.
std::span<const char* const> RankVariables();

}  // namespace heddle
