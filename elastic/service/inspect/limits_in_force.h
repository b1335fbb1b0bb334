/// \file
/// Every limit of a job's control plane, its own and those of the processes around it.
#pragma once

#include <vector>

#include "elastic/control/limits.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// In the order of docs/reference/limits.md. Thread-safe.
std::vector<Limit> LimitsInForce(const job::JobConfig& job);

/// A line a limit, in columns.
std::string LimitsTable(const std::vector<Limit>& limits);
/// A JSON list of objects with name, value, unit, source and meaning.
std::string LimitsJson(const std::vector<Limit>& limits);

}  // namespace heddle::elastic
