/// \file
/// The inside of stages of several workers, for people.
#pragma once

#include <string>

#include "base/status.h"
#include "planner/search/search.h"

namespace heddle::planner {

/// Describes what the members of each kind of group of the plan do for a microbatch: their shares,
/// the seconds of compute, and the exchanges with their bytes and seconds. Groups whose stages are
/// alike are described once, and of unlike ones the first eight. Empty: the plan has no groups.
/// Errors: those of SelectWorkers, program::MemberGraph and program::Lower. Pure.
Result<std::string> ExplainGroups(const SearchRequest& request, const program::Plan& plan);

}  // namespace heddle::planner
