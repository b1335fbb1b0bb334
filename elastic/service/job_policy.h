/// \file
/// Converts a job file to what the control plane uses of it. All functions are pure.
#pragma once

#include "elastic/control/policy.h"
#include "engine/job/job.h"

namespace heddle::elastic {

/// The policy of a job. Coordinator and workers derive the same one from the same job.
JobPolicy PolicyOf(const job::JobConfig& job);

wire::Emulation WireEmulation(const job::Emulation& emulation);
/// Converts a message; a speed of zero means unset and becomes 1.
job::Emulation EmulationOf(const wire::Emulation& emulation);

/// The job as the coordinator runs it, without a secret.
Job MakeJob(const job::JobConfig& job, const std::string& output_folder);

}  // namespace heddle::elastic
