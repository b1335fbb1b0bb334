/// \file
/// The search for plans whose stages are groups of a given number of workers. Workers that are
/// joined by the fastest links form teams (teams.h); the search then plans with a team as it does
/// with a worker, whose costs are those of the team's most loaded member with the exchanges between
/// members.
#pragma once

#include <vector>

#include "base/status.h"
#include "planner/search/search.h"

namespace heddle::planner {

/// The search for plans whose stages all are as many workers each as one of `sizes` says: of the
/// fastest plans of each size the fastest, or one that takes at most SearchRequest::tie longer and
/// has stages as large as those of the plan in force, otherwise smaller ones. The plans of other
/// sizes are among its alternatives. Errors: that of the first size, if there is no plan of any.
Result<SearchOutcome> SearchSizes(const SearchRequest& request, const std::vector<int>& sizes);

/// Search for plans whose stages are `size` workers each; for 1, planner::Search. Errors: those of
/// Search; kInvalidArgument (fewer workers than a team has, a model with fewer heads than that, or an
/// exact job).
Result<SearchOutcome> SearchTeams(const SearchRequest& request, int size);

}  // namespace heddle::planner
