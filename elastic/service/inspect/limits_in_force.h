/// \file
/// The timeouts and other limits of a job's control plane: those of the job, and fixed ones of the
/// processes.
#pragma once

#include <vector>

#include "elastic/control/limits.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// All limits in force for the job, in the order of docs/reference/limits.md. Thread: any.
std::vector<Limit> LimitsInForce(const job::JobConfig& job);

/// Formats the limits as a table with one line for each.
std::string LimitsTable(const std::vector<Limit>& limits);
/// Formats the limits as a JSON list of objects with name, value, unit, source and meaning.
std::string LimitsJson(const std::vector<Limit>& limits);

}  // namespace heddle::elastic
