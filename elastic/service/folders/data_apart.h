/// \file
/// Keeps what a run writes apart from the data that it reads.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// OK if the output folder and the folder of checkpoints, with symbolic links resolved, lie outside
/// of every data folder of the job: files written there would be data at the next start. Errors:
/// kInvalidArgument naming both folders; those of the file system.
Status CheckDataApart(const job::JobConfig& job, const std::string& output);

}  // namespace heddle::elastic
