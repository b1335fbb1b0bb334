#include "base/system/launched.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace heddle {

namespace {

std::optional<int> Number(const EnvironmentLookup& lookup, const char* name) {
  const char* text = name == nullptr ? nullptr : lookup(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  const char* end = text + std::strlen(text);
  int value = 0;
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 0) {
    return std::nullopt;
  }
  return value;
}

// Higher ones are no rank on one machine.
constexpr int kMostLocalRank = 65'535;

int LocalRank(const EnvironmentLookup& lookup, const char* name) {
  const int rank = Number(lookup, name).value_or(0);
  return rank <= kMostLocalRank ? rank : 0;
}

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* needs;  ///< Only where this variable is set, too.
};

constexpr Variables kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     nullptr},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
    {"pmix", "PMIX_RANK", nullptr, nullptr, nullptr},
};

}  // namespace

std::optional<Launched> FindLauncher(const EnvironmentLookup& lookup) {
  for (const Variables& variables : kLaunchers) {
    const std::optional<int> rank = Number(lookup, variables.rank);
    if (!rank || (variables.needs != nullptr && lookup(variables.needs) == nullptr)) {
      continue;
    }
    const int size = Number(lookup, variables.size).value_or(0);
    if (size > 0 && *rank >= size) {
      continue;
    }
    return Launched{.launcher = variables.launcher,
                    .rank = *rank,
                    .size = size,
                    .local_rank = LocalRank(lookup, variables.local_rank)};
  }
  return std::nullopt;
}

std::optional<Launched> FindLauncher() {
  return FindLauncher([](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  });
}

std::span<const char* const> RankVariables() {
  static const auto kNames = [] {
    std::array<const char*, std::size(kLaunchers)> ranks{};
    std::transform(std::begin(kLaunchers), std::end(kLaunchers), ranks.begin(),
                   [](const Variables& variables) { return variables.rank; });
    return ranks;
  }();
  return kNames;
}

}  // namespace heddle
