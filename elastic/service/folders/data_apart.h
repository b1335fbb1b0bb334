/// \file
/// A run never reads what it writes.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// Whether the output folder, and the folder of checkpoints, lie outside of every folder whose
/// files are the job's data, wherever links lead: what a run writes there would be data of its next
/// start. Errors: kInvalidArgument naming both.
Status CheckDataApart(const job::JobConfig& job, const std::string& output);

}  // namespace heddle::elastic
