/// \file
/// The name of a worker that mpirun, srun or the like started together with others.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "base/system/launched.h"

namespace heddle::elastic {

/// `names`: a name, a list "a,b,c" of one name a rank, or nothing. One name is this worker's, who
/// starts it or not: a launcher may give each of its processes another command line, and of two
/// workers with one name the coordinator refuses the second. A list: the rank's name. Nothing:
/// "worker-RANK" of one of several; the coordinator chooses for one without a launcher, and for the
/// only one of its launcher: that may be a shell from which many workers are started. Errors:
/// kInvalidArgument (a list without a launcher or too short for the rank, an empty name in it).
Result<std::string> NameOfRank(const std::string& names, const std::optional<Launched>& launched);

}  // namespace heddle::elastic
