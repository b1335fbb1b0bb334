#include "planner/teams/teams.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "comm/cost/islands.h"

namespace heddle::planner {
namespace {

/// Simpler shares that cost less than this are taken before finer ones: speeds are not measured
/// better.
constexpr double kWorthFiner = 1.05;

/// `units` units divided so that the slowest member ends as early as possible; one each at least.
std::vector<int> Apportion(const std::vector<double>& speeds, int64_t units) {
  std::vector<int> shares(speeds.size(), 1);
  for (int64_t left = units - std::ssize(speeds); left > 0; --left) {
    size_t best = 0;
    for (size_t i = 1; i < speeds.size(); ++i) {
      if ((shares[i] + 1) / speeds[i] < (shares[best] + 1) / speeds[best]) {
        best = i;
      }
    }
    ++shares[best];
  }
  const int common =
      std::accumulate(shares.begin(), shares.end(), 0, [](int a, int b) { return std::gcd(a, b); });
  for (int& share : shares) {
    share /= common;
  }
  return shares;
}

/// Time of the slowest member over that of shares that fit the speeds exactly.
double Imbalance(const std::vector<double>& speeds, const std::vector<int>& shares) {
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const double units = std::accumulate(shares.begin(), shares.end(), 0.0);
  double worst = 0;
  for (size_t i = 0; i < speeds.size(); ++i) {
    worst = std::max(worst, shares[i] / units / (speeds[i] / sum));
  }
  return worst;
}

std::vector<int> UnitsFor(const graph::Heads& heads, const std::vector<double>& speeds) {
  std::vector<int> fine = Apportion(speeds, heads.query);
  const auto suffices = [&](const std::vector<int>& units) {
    return Imbalance(speeds, units) <= kWorthFiner * Imbalance(speeds, fine);
  };
  std::vector<int> even(speeds.size(), 1);
  if (heads.query % std::ssize(speeds) == 0 && suffices(even)) {
    return even;
  }
  if (heads.key_value >= std::ssize(speeds)) {
    std::vector<int> coarse = Apportion(speeds, heads.key_value);
    if (suffices(coarse)) {
      return coarse;
    }
  }
  return fine;
}

/// The islands without those who are in a team; everybody in one if no island has `size` workers.
std::vector<std::vector<int>> Free(const comm::LinkTable& links,
                                   int size,
                                   const std::vector<Team>& teams) {
  std::vector<std::vector<int>> islands = comm::FindIslands(links);
  if (std::ranges::none_of(islands,
                           [&](const auto& island) { return std::ssize(island) >= size; })) {
    islands.assign(1, std::vector<int>(static_cast<size_t>(links.size())));
    std::iota(islands[0].begin(), islands[0].end(), 0);
  }
  for (std::vector<int>& island : islands) {
    std::erase_if(island, [&](int rank) {
      return std::ranges::any_of(
          teams, [&](const Team& team) { return std::ranges::count(team.ranks, rank) > 0; });
    });
  }
  return islands;
}

}  // namespace

std::vector<Team> MakeTeams(const graph::Heads& heads,
                            const comm::LinkTable& links,
                            const std::vector<double>& speeds,
                            int size,
                            const std::vector<Team>& kept) {
  const auto speeds_of = [&](const std::vector<int>& ranks) {
    std::vector<double> of_team;
    for (const int rank : ranks) {
      of_team.push_back(speeds[static_cast<size_t>(rank)]);
    }
    return of_team;
  };
  std::vector<Team> teams = kept;
  for (Team& team : teams) {
    const std::vector<double> of_team = speeds_of(team.ranks);
    std::vector<int> units = UnitsFor(heads, of_team);
    if (Imbalance(of_team, team.units) > kWorthFiner * Imbalance(of_team, units)) {
      team.units = std::move(units);
    }
  }
  for (std::vector<int>& island : Free(links, size, teams)) {
    std::ranges::stable_sort(island, [&](int a, int b) {
      return speeds[static_cast<size_t>(a)] > speeds[static_cast<size_t>(b)];
    });
    for (auto first = island.begin(); island.end() - first >= size; first += size) {
      std::vector<int> ranks(first, first + size);
      std::vector<int> units = UnitsFor(heads, speeds_of(ranks));
      teams.push_back({.ranks = std::move(ranks), .units = std::move(units)});
    }
  }
  return teams;
}

void MakeAlike(const graph::Heads& heads,
               const std::vector<double>& speeds,
               std::vector<Team>& teams) {
  std::vector<double> means(teams[0].ranks.size(), 0);
  for (const Team& team : teams) {
    double sum = 0;
    for (const int rank : team.ranks) {
      sum += speeds[static_cast<size_t>(rank)];
    }
    for (size_t position = 0; position < means.size(); ++position) {
      means[position] += speeds[static_cast<size_t>(team.ranks[position])] / sum;
    }
  }
  const std::vector<int> units = UnitsFor(heads, means);
  for (Team& team : teams) {
    team.units = units;
  }
}

}  // namespace heddle::planner
