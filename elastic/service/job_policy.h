/// \file
/// From a job file to what the control plane knows of it.
#pragma once

#include "elastic/control/policy.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// Both sides derive it from the same job: a pure function.
JobPolicy PolicyOf(const job::JobConfig& job);

wire::Emulation WireEmulation(const job::Emulation& emulation);
/// Zero speed means none was said: 1.
job::Emulation EmulationOf(const wire::Emulation& emulation);

/// The job as the coordinator runs it, without a secret.
Job MakeJob(const job::JobConfig& job, const std::string& output_folder);

}  // namespace heddle::elastic
