/// \file
/// The digests of a worker's state. The coordinator compares what has to be equal on all workers
/// before a generation goes on from it, and now and then while steps run.
#pragma once

#include "base/status.h"
#include "elastic/worker/trainer/generation.h"
#include "elastic/worker/trainer/job_context.h"
#include "engine/program/state.h"

namespace heddle::elastic {

/// Computes the digests of the state after generation.applied_step. Reads all parameters that other
/// workers hold, too, at nearly the bandwidth of memory. Precondition: the worker has a rank in the
/// plan. Errors: the device's.
Result<wire::Certificate> CertificateOf(const JobContext& context, const Generation& generation);

/// Posts StateDigested if digests are due after the last applied step. Errors: the device's.
Status TellDigestsIfDue(const JobContext& context, const Generation& generation);

}  // namespace heddle::elastic
