/// \file
/// The rank of this process among those that a launcher started together, from the environment. No
/// launcher's library is linked: mpirun, srun and similar ones set these variables for any program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace heddle {

struct Launched {
  std::string launcher;  ///< "mpirun", "pmix", "pmi" or "srun".
  int rank = 0;          ///< Rank among the processes that were started together.
  int size = 0;          ///< Number of those processes; 0: the launcher does not set it.
  int local_rank = 0;    ///< Rank among those of this machine, below 65,536; 0: also if not set.
};

using EnvironmentLookup = std::function<const char*(const char* name)>;

/// The launcher found by `lookup`; nullopt: no launcher set its variables, or they hold no rank.
/// The innermost launcher is used: Open MPI's variables come before Slurm's, in whose allocation
/// mpirun may run. Slurm's are used only inside a step (`srun`), because a batch script has a
/// SLURM_PROCID, too.
std::optional<Launched> FindLauncher(const EnvironmentLookup& lookup);
/// The launcher found in this process' environment; nullopt: none.
std::optional<Launched> FindLauncher();
/// The names of the variables that hold ranks. A process that starts others itself unsets them, so
/// that its children do not use its rank.
std::span<const char* const> RankVariables();

}  // namespace heddle
