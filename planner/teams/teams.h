/// \file
/// Plans whose stages are groups of a given number of workers. Workers that are joined by the
/// fastest links form teams; the search then plans with a team as it does with a worker, whose
/// costs are those of the team's most loaded member with the exchanges between members.
#pragma once

#include <vector>

#include "base/status.h"
#include "comm/cost/links.h"
#include "engine/graph/sharding/tensor_parallel.h"
#include "planner/search/search.h"

namespace heddle::planner {

/// Workers that run stages together.
struct Team {
  std::vector<int> ranks;  ///< By position: indices into the cluster's workers.
  std::vector<int> units;  ///< By position: the share of a layer's work.
  friend bool operator==(const Team&, const Team&) = default;
};

/// Teams of `size` workers each, `kept` first. Other teams' members are of one island
/// (comm/cost/islands.h), if any island has so many, and of about the same speed; what is left of
/// an island is in no team. Shares are in proportion to speeds, in whole groups of the query heads
/// that read one key/value head unless that costs more than 5 %; those of a kept team stay as they
/// are unless others are 5 % better. `speeds`: by rank. Pure.
std::vector<Team> MakeTeams(const graph::Heads& heads,
                            const comm::LinkTable& links,
                            const std::vector<double>& speeds,
                            int size,
                            const std::vector<Team>& kept);

/// Search for plans whose stages are `size` workers each; for 1, planner::Search. Errors: those of
/// Search; kInvalidArgument (fewer workers than a team has, a model with fewer heads than that, or an
/// exact job).
Result<SearchOutcome> SearchTeams(const SearchRequest& request, int size);

}  // namespace heddle::planner
