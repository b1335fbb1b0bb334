/// \file
/// Groups of workers that run stages together: who is in one, and what share of a layer each has.
#pragma once

#include <vector>

#include "comm/cost/links.h"
#include "engine/graph/sharding/tensor_parallel.h"

namespace heddle::planner {

/// Workers that run stages together.
struct Team {
  std::vector<int> ranks;  ///< By position: indices into the cluster's workers.
  std::vector<int> units;  ///< By position: the share of a layer's work.
  friend bool operator==(const Team&, const Team&) = default;
};

/// Teams of `size` workers each, `kept` first. Other teams' members are of one island
/// (comm/cost/islands.h), if any island has so many, and of about the same speed; what is left of
/// an island is in no team. Shares are in proportion to speeds, but equal, or else in whole groups of
/// the query heads that read one key/value head, unless that costs more than 5 %; those of a kept
/// team stay as they are unless others are 5 % better. `speeds`: by rank. Pure.
std::vector<Team> MakeTeams(const graph::Heads& heads,
                            const comm::LinkTable& links,
                            const std::vector<double>& speeds,
                            int size,
                            const std::vector<Team>& kept);

/// Gives all teams the shares that suit the means of their members' speeds. Precondition: a team.
void MakeAlike(const graph::Heads& heads,
               const std::vector<double>& speeds,
               std::vector<Team>& teams);

}  // namespace heddle::planner
