/// \file
/// The name of a worker that mpirun, srun or the like started together with others.
#pragma once

#include <optional>
#include <string>

#include "base/launched.h"
#include "base/status.h"

namespace heddle::elastic {

/// `names`: a name, a list "a,b,c" of one name a rank, or nothing. Without a launcher: `names`
/// itself (empty: the coordinator chooses). With one: the rank's name of the list, else
/// "worker-RANK". Errors: kInvalidArgument (a list without a launcher or too short for the rank;
/// one name for several workers).
Result<std::string> NameOfRank(const std::string& names, const std::optional<Launched>& launched);

}  // namespace heddle::elastic
