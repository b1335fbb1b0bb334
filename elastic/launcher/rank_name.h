/// \file
/// The name of a worker that a launcher such as mpirun or srun has started together with others.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "base/system/launched.h"

namespace heddle::elastic {

/// Returns the worker's name; empty: the coordinator chooses one. `names` is one of
///   a name         it is the worker's, also under a launcher, which may give each process another
///                  command line; the coordinator refuses a second worker with the same name
///   a list "a,b,c" one name for each rank
///   empty          "worker-RANK" under a launcher of several processes, otherwise an empty name:
///                  a launcher of one process may be a shell from which many workers are started
/// Errors: kInvalidArgument (a list without a launcher or too short for the rank, an empty name in
/// it).
Result<std::string> NameOfRank(const std::string& names, const std::optional<Launched>& launched);

}  // namespace heddle::elastic
