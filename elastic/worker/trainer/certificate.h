/// \file
/// What a worker tells of the state that it holds, so that all that should be the same everywhere
/// is compared before anybody goes on from it, and now and then while steps run.
#pragma once

#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "engine/program/state.h"

namespace heddle::elastic {

/// Of the state after generation.applied_step. Reads what other workers hold, too: at the rate of
/// the memory, nearly. Precondition: the worker has a rank in the plan. Errors: the device's.
Result<wire::Certificate> CertificateOf(const JobContext& context, const Generation& generation);

/// Where digests are due after the step applied last: posts StateDigested. Errors: the device's.
Status TellDigestsIfDue(const JobContext& context, const Generation& generation);

}  // namespace heddle::elastic
